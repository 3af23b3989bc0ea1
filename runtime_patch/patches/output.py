"""Patch of the way the scheduler reports an aborted request."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from runtime_patch.patches.base import Patch
from runtime_patch.patches.scheduler import SCHEDULER, book_of
from runtime_patch.step_request import StepReq


class AbortPatch(Patch):
    """Drops a step that ends outside a forward: queued, chunked, retracted, rejected.

    Why here: every such end passes through this function."""

    target = f"{SCHEDULER}.send_abort_output"
    parameters = ("self", "abort_req", "req")

    def around(self, original: Callable, scheduler: Any, abort_req: Any, req: Any) -> None:
        original(scheduler, abort_req, req)
        book = book_of(scheduler)
        if book is None:
            return
        if isinstance(req, StepReq):
            book.drop(req, "aborted")
        else:
            book.lose_part(req.rid)
