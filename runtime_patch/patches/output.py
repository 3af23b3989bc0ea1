"""Patch of the way the scheduler reports an aborted request."""

from __future__ import annotations

from collections.abc import Callable
from http import HTTPStatus
from typing import Any

from runtime_patch.patches.base import Patch
from runtime_patch.patches.scheduler import SCHEDULER, book_of, pool_message
from runtime_patch.scheduler.step_req import StepReq


class AbortPatch(Patch):
    """Drops a step that ends outside a forward: queued, chunked, retracted, rejected.

    Why here: every such end passes through this function. Where SGLang ran out of KV it
    calls that an internal error; for a team it is a pool that is too small."""

    target = f"{SCHEDULER}.send_abort_output"
    parameters = ("self", "abort_req", "req")

    def around(self, original: Callable, scheduler: Any, abort_req: Any, req: Any) -> None:
        book = book_of(scheduler)
        reason = abort_req.finished_reason or {}
        out_of_kv = "out of memory" in (reason.get("message") or "").lower()
        if book is not None and book.belongs(req) and out_of_kv:
            abort_req.finished_reason = {
                **reason,
                "status_code": HTTPStatus.SERVICE_UNAVAILABLE,
                "message": pool_message(scheduler, req, "ran out while it was being written"),
            }
        original(scheduler, abort_req, req)
        if book is None:
            return
        if isinstance(req, StepReq):
            book.drop(req, "aborted")
        else:
            book.lose_part(req.rid)
