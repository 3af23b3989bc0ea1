"""Patch of the idle scheduler."""

from __future__ import annotations

from collections.abc import Callable
from http import HTTPStatus
from typing import Any

from runtime_patch.patches.access import SCHEDULER, abort, pool_message, teams_of
from runtime_patch.patches.base import Patch

# Idle rounds, without a forward in between, after which a team's queued request counts as
# starved: nothing runs that could free KV, and SGLang has tried to evict what it may.
STARVED_ROUNDS = 20


class IdlePatch(Patch):
    """Ends a team's queued request that can never be admitted.

    Why: SGLang keeps a request queued until KV is freed. When nothing runs, what is held
    is held by open teams, and the request would wait for ever."""

    target = f"{SCHEDULER}.on_idle"
    parameters = ("self",)
    relies_on = ("self.is_fully_idle()",)

    def around(self, original: Callable, scheduler: Any) -> None:
        original(scheduler)
        teams = teams_of(scheduler)
        if teams is None:
            return
        if not scheduler.running_batch.is_empty():
            return  # a team waits for its worker's next step, and will go on
        queue, starvation, belongs = (
            scheduler.waiting_queue,
            teams.starvation,
            teams.requests.belongs,
        )
        starving = [req for req in queue if belongs(req)]
        starvation.rounds = starvation.rounds + 1 if starving else 0
        if starvation.rounds < STARVED_ROUNDS:
            return
        starvation.rounds = 0
        if starving[0] is not queue[0] and not starvation.teams_went_first:
            # An ordinary request in front has to wait until a team closes; what the teams
            # ask for may be less.
            starvation.teams_went_first = True
            queue.sort(key=lambda req: not belongs(req))
            return
        # One only: with it out of the way the next may find room.
        queue.remove(starving[0])
        message = pool_message(scheduler, starving[0], "has no room to start it")
        abort(scheduler, starving[0], message, HTTPStatus.SERVICE_UNAVAILABLE)
