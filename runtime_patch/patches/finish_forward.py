"""Patch of the place where the results of a forward have been processed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from runtime_patch.patches.access import SCHEDULER, teams_of
from runtime_patch.patches.base import Patch
from runtime_patch.patches.batches import rejoin


class FinishForwardPatch(Patch):
    """Counts each forward for the teams in it, then publishes the steps that ended.

    Why here: all results of a forward have been processed when this returns, so steps
    that ended together can be published in worker order."""

    target = f"{SCHEDULER}.process_batch_result"
    parameters = ("self", "batch", "result")
    relies_on = ("process_batch_result_decode", "process_batch_result_prefill")

    def around(self, original: Callable, scheduler: Any, batch: Any, result: Any) -> None:
        teams = teams_of(scheduler)
        if teams is None:
            return original(scheduler, batch, result)
        reqs = list(batch.reqs)
        teams.starvation.reset()
        teams.forwards.count_forward(reqs)
        original(scheduler, batch, result)
        teams.forwards.finish_forward(reqs)
        rejoin(scheduler)
