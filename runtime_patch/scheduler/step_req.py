"""The request class of a team's steps, readers and says."""

from __future__ import annotations

from array import array
from enum import StrEnum
from http import HTTPStatus
from typing import Any

import torch
from sglang.srt.managers.schedule_batch import (
    FINISH_ABORT,
    FINISH_LENGTH,
    FINISH_MATCHED_TOKEN,
    BaseFinishReason,
    Req,
)

from runtime_patch.scheduler.end_rule import BREAK, ends_step
from runtime_patch.team_request import Purpose


class FinishSentence(BaseFinishReason):
    """The step ended by the step-end rule."""

    def to_json(self) -> dict:
        return {"type": "sentence"}


class FinishContext(FINISH_LENGTH):
    """The step ended because its view would outgrow the model's context."""

    def to_json(self) -> dict:
        return {"type": "context", "length": self.length}


class Stage(StrEnum):
    """Where a request stands on its way; only ``step_queue.py`` moves it to QUEUED."""

    AHEAD = "ahead"  # waits behind its worker's live step
    WAITING = "waiting"  # its grammar still compiles, or its team waits in lockstep
    QUEUED = "queued"  # in SGLang's hands: in its queue or in a batch
    ENDED = "ended"  # published, read or dropped


class StepReq(Req):
    """A request whose row holds only its own tokens; what stands before them is its view."""

    def __init__(self, *args: Any, purpose: Purpose, **kwargs: Any):
        super().__init__(*args, **kwargs)
        self.purpose = purpose
        self.team = purpose.team
        self.kind = purpose.kind
        self.worker = purpose.worker
        # No other request may match or wait for a step's tokens: their KV depends on a view.
        self.extra_key = f"hogwild:{self.team}:{self.rid}"
        self.stage = Stage.WAITING
        # SGLang has handed it to its queue, as it does once a grammar is compiled.
        self.grammar_ready = False
        # Tokens by which the view may still grow, set before each forward.
        self.view_room: int | None = None
        # Forwards it had a row in, and the history's length at the first of them.
        self.forwards = 0
        self.history_start: int | None = None
        # The team has used the forwards at which it ends, set with each forward.
        self.out_of_forwards = False
        # int64 KV slots that it leaves to the team when it finishes.
        self.stashed_slots: torch.Tensor | None = None

    def continue_from(self, carried: int | None, separated: bool) -> None:
        """Before it begins: feed the worker's carried token first, and the separator unless
        the worker's text ends in a blank line (``separated``)."""
        tokens = [] if self.purpose.empty else list(self.origin_input_ids)
        if self.purpose.separated is not None and not separated:
            tokens = self.purpose.separated
        if carried is not None:
            tokens = [carried, *tokens]
        # "No logprobs of what is fed" is kept by SGLang as a start behind the last token.
        if self.logprob_start_len == len(self.origin_input_ids):
            self.logprob_start_len = len(tokens)
        self.origin_input_ids = array("q", tokens)
        self.origin_input_ids_unpadded = self.origin_input_ids

    @property
    def aborting(self) -> bool:
        """Has it been aborted, though its last forward may still come?"""
        reason = self.finished_reason or self.to_finish
        return isinstance(reason, FINISH_ABORT)

    @property
    def written(self) -> int:
        """Tokens of this request that have KV."""
        return self.kv.kv_committed_len

    @property
    def ends_turn(self) -> bool:
        """Did it end the worker's turn, or fill its view? Nothing can go on from there."""
        return isinstance(self.finished_reason, FINISH_MATCHED_TOKEN | FinishContext)

    @property
    def carried(self) -> int | None:
        """The last sampled token, which has no KV: the worker's next step begins with it.

        A token that ended the step as an end-of-sequence token is not carried on."""
        sampled = self.output_ids_through_stop
        if not sampled or isinstance(self.finished_reason, FINISH_MATCHED_TOKEN):
            return None
        return sampled[-1]

    def update_finish_state(self, new_accepted_len: int = 1) -> None:
        super().update_finish_state(new_accepted_len)
        spent = isinstance(self.finished_reason, FINISH_LENGTH)
        if not self.output_ids or (self.finished() and not spent):
            return
        # A step that is whole when its budget is spent ended by the rule.
        if self.purpose.ends_by_rule and self._at_step_end():
            self._finish(FinishSentence())
        elif not spent and self.out_of_forwards:
            self._finish(FINISH_LENGTH(len(self.output_ids)))
        elif not spent and self.view_room is not None and self.view_room <= 0:
            self._finish(FinishContext(len(self.output_ids)))

    def _finish(self, reason: BaseFinishReason) -> None:
        self.finished_reason = reason
        self.finished_len = len(self.output_ids)

    def _at_step_end(self) -> bool:
        newest = self.tokenizer.decode([self.output_ids[-1]])
        if BREAK not in newest:
            return False
        text = self.tokenizer.decode(list(self.origin_input_ids) + list(self.output_ids))
        return text.endswith(newest) and ends_step(text, newest)


def refuse(req: Req, message: str, status: int, type: str | None = None) -> Req:
    """Let a request end at once with an error, the way SGLang ends a bad one."""
    status = HTTPStatus(status)
    req.set_finish_with_abort(message, status, type or status.name)
    return req
