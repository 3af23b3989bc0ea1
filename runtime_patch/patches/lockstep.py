"""Patches that let the steps of a team in lockstep sit out a forward."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from runtime_patch.patches.access import SCHEDULER, teams_of
from runtime_patch.patches.base import Patch
from runtime_patch.patches.batches import HELD, join, split


class HoldPatch(Patch):
    """Takes the rows that sit out the next forward from the running batch.

    Why here: all that has been prefilled is in the running batch, and neither a mixed nor
    a decode batch has been made of it yet."""

    target = f"{SCHEDULER}.get_new_batch_prefill"
    parameters = ("self", "running_batch")
    relies_on = ("return NextBatchPlan(batch_to_run=ret, running_batch=running_batch)",)

    def around(self, original: Callable, scheduler: Any, running_batch: Any) -> Any:
        teams = teams_of(scheduler)
        if teams is None:
            return original(scheduler, running_batch)
        places = teams.forwards.held(running_batch.reqs, chunking=scheduler.chunked_req is not None)
        if places:
            running_batch, held = split(running_batch, places)
            setattr(scheduler, HELD, held)
        return original(scheduler, running_batch)


class PlanPatch(Patch):
    """Puts them back as soon as a batch is chosen, so that nothing else misses them.

    Why not always: where the running batch itself is run, they would run with it. Then
    FinishForwardPatch does it after the forward."""

    target = f"{SCHEDULER}.get_next_batch_to_run"
    parameters = ("self", "running_batch", "last_batch")
    relies_on = (
        "prefill_plan = self.get_new_batch_prefill(running_batch)",
        "return NextBatchPlan(batch_to_run=ret, running_batch=running_batch)",
    )

    def around(
        self, original: Callable, scheduler: Any, running_batch: Any, last_batch: Any
    ) -> Any:
        plan = original(scheduler, running_batch=running_batch, last_batch=last_batch)
        if HELD in scheduler.__dict__ and plan.batch_to_run is not plan.running_batch:
            plan.running_batch = join(plan.running_batch, scheduler.__dict__.pop(HELD))
        return plan
