"""When a team's request may begin, and how it is told if not."""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING, Protocol

from runtime_patch.scheduler.team import Team

if TYPE_CHECKING:
    from runtime_patch.scheduler.step_req import StepReq

# What an error is called where a step cannot be begun: there is nothing that it could go on
# from, or the forwards that it was given have been used.
NOT_BEGUN = "not_begun"
OUT_OF_FORWARDS = "out_of_forwards"
DROPPED = "the live step that this one was to follow has been dropped"
TURN_OVER = "the step that this one was to follow ended its worker's turn, or filled its view"


class TeamError(Exception):
    """A command or request that the book refuses. kind: its type, if not the status's name."""

    def __init__(
        self,
        message: str,
        status: HTTPStatus = HTTPStatus.BAD_REQUEST,
        kind: str | None = None,
    ):
        super().__init__(message)
        self.status = status
        self.kind = kind


class Requests(Protocol):
    """What the book asks of SGLang's scheduler about requests."""

    def abort(self, rid: str) -> None:
        """Abort a running, queued or parked request."""

    def enqueue(self, req: StepReq) -> None:
        """Put a parked request into the waiting queue."""

    def refuse(self, req: StepReq, error: TeamError) -> None:
        """End a request that is in no queue with an error."""


def not_begun(why: str) -> TeamError:
    return TeamError(why, HTTPStatus.CONFLICT, NOT_BEGUN)


def check_passes(team: Team, req: StepReq) -> None:
    """Raise TeamError if the team has used the forwards at which the step was to end.
    Otherwise ask for no more tokens than can be written until then."""
    if req.until is None:
        return
    left, params = req.until - team.forwards, req.sampling_params
    if left <= 0:
        raise TeamError(
            f"the team has used {team.forwards} forwards, and this step was to end at {req.until}",
            HTTPStatus.CONFLICT,
            OUT_OF_FORWARDS,
        )
    params.max_new_tokens = min(params.max_new_tokens, left)


def check_view(view: int, req: StepReq, context: int) -> None:
    """Raise TeamError if a view of so many tokens has no room for the request."""
    fed, budget = len(req.origin_input_ids), req.sampling_params.max_new_tokens
    if view + fed + budget > context:
        raise TeamError(
            f"the view has {view} tokens, {fed} would be fed and up to {budget} written: "
            f"{view + fed + budget} in all, but the context holds {context}"
        )


def check_pool(tokens: int, pool: int) -> None:
    """Raise TeamError if so many tokens could not be written into an empty pool."""
    if tokens >= pool:
        raise TeamError(
            f"the text has {tokens} tokens, but the KV pool holds {pool}: shorten it, or start "
            "the server with a larger --max-total-tokens",
            HTTPStatus.SERVICE_UNAVAILABLE,
        )
