"""Whether a team's request may begin: what is left of forwards, view and pool."""

from __future__ import annotations

from http import HTTPStatus

from runtime_patch.errors import OUT_OF_FORWARDS, TeamError
from runtime_patch.scheduler.step_req import StepReq
from runtime_patch.scheduler.team import Team

DROPPED = "the live step that this one was to follow has been dropped"
WORKER_DONE = "the step that this one was to follow ended its worker's turn, or filled its view"


def check_forwards(team: Team, req: StepReq) -> None:
    """Raise TeamError if the team has used the forwards at which the step was to end.
    Otherwise ask for no more tokens than can be written until then."""
    limit, params = req.purpose.forwards_limit, req.sampling_params
    if limit is None:
        return
    left = limit - team.forwards
    if left <= 0:
        raise TeamError(
            f"the team has used {team.forwards} forwards, and this step was to end at {limit}",
            HTTPStatus.CONFLICT,
            OUT_OF_FORWARDS,
        )
    params.max_new_tokens = min(params.max_new_tokens, left)


def check_fed(req: StepReq) -> None:
    """Raise TeamError if a request that continues its worker has no token to begin with."""
    if not req.origin_input_ids:
        raise TeamError("nothing to feed: give a text (the worker carries no token)")


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
