"""What several patches need of a scheduler."""

from __future__ import annotations

from http import HTTPStatus
from typing import Any

from sglang.srt.managers.schedule_batch import FINISH_ABORT

from runtime_patch.scheduler.team_manager import TeamManager

SCHEDULER = "sglang.srt.managers.scheduler.Scheduler"
# Where a scheduler keeps its team manager.
TEAMS = "hogwild_teams"


def teams_of(scheduler: Any) -> TeamManager | None:
    """The scheduler's team manager; None when it does not run the hogwild tree."""
    return getattr(scheduler, TEAMS, None)


def abort(
    scheduler: Any, req: Any, message: str, status: int, error_type: str | None = None
) -> None:
    """End a request that is in no queue and in no batch, and tell its client."""
    from sglang.srt.managers.scheduler import _make_abort_req

    status = HTTPStatus(status)
    reason = FINISH_ABORT(message, status, error_type or status.name)
    req.finished_reason = reason
    scheduler._release_aborted_request(req)
    scheduler.send_abort_output(_make_abort_req(req, finished_reason=reason.to_json()), req)


def pool_message(scheduler: Any, req: Any, what: str) -> str:
    """Why the KV pool cannot hold a request, with its counts and what to do."""
    cache, allocator = scheduler.tree_cache, scheduler.token_to_kv_pool_allocator
    return (
        f"the KV pool of {scheduler.max_total_num_tokens} tokens {what}: "
        f"{allocator.available_size()} are free, {cache.evictable_size()} can be evicted, "
        f"{cache.protected_size()} are held by open teams, and the request has "
        f"{len(req.origin_input_ids)} tokens and may write "
        f"{req.sampling_params.max_new_tokens}. Close a team, ask for fewer tokens, or start "
        "the server with a larger --max-total-tokens."
    )
