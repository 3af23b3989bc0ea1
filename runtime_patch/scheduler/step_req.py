"""The request class of a team's steps, readers and says."""

from __future__ import annotations

from array import array
from http import HTTPStatus

from sglang.srt.managers.schedule_batch import (
    FINISH_ABORT,
    FINISH_LENGTH,
    FINISH_MATCHED_TOKEN,
    BaseFinishReason,
    Req,
)

from runtime_patch.scheduler.end_rule import BREAK, ends_step
from runtime_patch.scheduler.team import Kind


class FinishSentence(BaseFinishReason):
    """The step ended by the step-end rule."""

    def to_json(self) -> dict:
        return {"type": "sentence"}


class FinishContext(FINISH_LENGTH):
    """The step ended because its view would outgrow the model's context."""

    def to_json(self) -> dict:
        return {"type": "context", "length": self.length}


class StepReq(Req):
    """A request whose row holds only its own tokens; what stands before them is its view.

    team, kind, worker: whose it is.
    ends_by_rule: end by the step-end rule.
    view_room: tokens by which the view may still grow, set before each forward.
    forwards: forwards it had a row in.
    taken: int64 KV slots handed to the team when it finished; None until then.
    parked: it waits outside SGLang's queue, for its worker's live step or, in lockstep, for
        the other workers' steps.
    until: the team's forwards at which it ends; None for no such bound. out_of_passes: they
        have been used, set with each forward.
    separated: the tokens to feed if the worker's text does not end in a blank line.
    """

    def __init__(
        self,
        *args,
        team: str,
        kind: Kind,
        worker: int | None,
        ends_by_rule: bool,
        until: int | None = None,
        separated: list[int] | None = None,
        **kw,
    ):
        super().__init__(*args, **kw)
        # No other request may match or wait for a step's tokens: their KV depends on a view.
        self.extra_key = f"hogwild:{team}:{self.rid}"
        self.team = team
        self.kind = kind
        self.worker = worker
        self.ends_by_rule = ends_by_rule
        self.view_room: int | None = None
        self.forwards = 0
        self.history_start: int | None = None
        self.taken = None
        self.parked = False
        self.until = until
        self.out_of_passes = False
        self.separated = separated

    def go_on_from(self, carried: int | None, after_a_break: bool) -> None:
        """Before it begins: feed the worker's carried token first, and the separator unless
        the worker's text ends in a blank line (``after_a_break``)."""
        tokens = list(self.origin_input_ids)
        if self.separated is not None and not after_a_break:
            tokens = self.separated
        if carried is not None:
            tokens = [carried, *tokens]
        # "No logprobs of what is fed" is kept by SGLang as a start behind the last token.
        if self.logprob_start_len == len(self.origin_input_ids):
            self.logprob_start_len = len(tokens)
        self.origin_input_ids = array("q", tokens)
        self.origin_input_ids_unpadded = self.origin_input_ids

    @property
    def doomed(self) -> bool:
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
        if self.ends_by_rule and self._at_step_end():
            self._finish(FinishSentence())
        elif not spent and self.out_of_passes:
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


def refuse(req: Req, message: str, status: HTTPStatus, kind: str | None = None) -> Req:
    """Let a request end at once with an error, the way SGLang ends a bad one."""
    req.set_finish_with_abort(message, status, kind or status.name)
    return req
