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

from runtime_patch.step_end import BREAK, ends_step
from runtime_patch.teams import Kind


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
    parked: it waits for its worker's live step, outside SGLang's queue.
    """

    def __init__(self, *args, team: str, kind: Kind, worker: int | None, ends_by_rule: bool, **kw):
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

    def feed_first(self, token: int) -> None:
        """Put the worker's carried token before the tokens to feed.

        "No logprobs of what is fed" is kept by SGLang as a start behind the last token."""
        if self.logprob_start_len == len(self.origin_input_ids):
            self.logprob_start_len += 1
        self.origin_input_ids = array("q", [token, *self.origin_input_ids])
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


def refuse(req: Req, message: str, status: HTTPStatus) -> Req:
    """Let a request end at once with an error, the way SGLang ends a bad one."""
    req.set_finish_with_abort(message, status, status.name)
    return req
