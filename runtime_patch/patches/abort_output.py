"""Patch of the way the scheduler reports an aborted request."""

from __future__ import annotations

from collections.abc import Callable
from http import HTTPStatus
from typing import Any

from runtime_patch.patches.access import SCHEDULER, pool_message, teams_of
from runtime_patch.patches.base import Patch
from runtime_patch.scheduler.step_req import StepReq


class AbortOutputPatch(Patch):
    """Drops a step that ends outside a forward: queued, chunked, retracted, rejected.

    Why here: every such end passes through this function. Where SGLang ran out of KV it
    calls that an internal error; for a team it is a pool that is too small."""

    target = f"{SCHEDULER}.send_abort_output"
    parameters = ("self", "abort_req", "req")

    def around(self, original: Callable, scheduler: Any, abort_req: Any, req: Any) -> None:
        teams = teams_of(scheduler)
        if teams is None:
            return original(scheduler, abort_req, req)
        reason = abort_req.finished_reason or {}
        out_of_kv = "out of memory" in (reason.get("message") or "").lower()
        if teams.requests.belongs(req) and out_of_kv:
            abort_req.finished_reason = {
                **reason,
                "status_code": HTTPStatus.SERVICE_UNAVAILABLE,
                "message": pool_message(scheduler, req, "ran out while it was being written"),
            }
        original(scheduler, abort_req, req)
        if isinstance(req, StepReq):
            teams.requests.drop(req, "aborted")
        else:
            teams.requests.lose_part(req.rid)
        return None
