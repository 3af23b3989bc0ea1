"""Patches of the scheduler's waiting queue, and of aborting what is not in it."""

from __future__ import annotations

from collections.abc import Callable
from http import HTTPStatus
from typing import Any

from runtime_patch.patches.access import SCHEDULER, abort, pool_message, teams_of
from runtime_patch.patches.base import Patch
from runtime_patch.scheduler.step_req import Stage, StepReq


class QueuePatch(Patch):
    """Lets the team's rule say when a step is queued, puts a step in lockstep to the queue's
    front, and ends a retracted one with an error.

    Why: SGLang queues a request as soon as its grammar is compiled. A step may have to wait
    for its worker's live step or, in lockstep, for another worker's (``step_queue.py``).
    A step in lockstep goes on where its worker has just stopped; the others wait for it.
    A retracted one would be prefilled anew, with a view that has moved on, so its KV would
    not be what its writer saw; the pool was too small for the team."""

    target = f"{SCHEDULER}._add_request_to_queue"
    parameters = ("self", "req", "is_retracted")
    relies_on = ("self.waiting_queue.append(req)",)

    def around(
        self, original: Callable, scheduler: Any, req: Any, is_retracted: bool = False
    ) -> None:
        teams = teams_of(scheduler)
        if teams is None or not isinstance(req, StepReq):
            return original(scheduler, req, is_retracted=is_retracted)
        if req.stage is Stage.ENDED:
            return None  # it was refused while its grammar was compiled
        if req.stage is not Stage.QUEUED:
            return teams.requests.offer(req)
        if req.retraction_count:
            return _end_retracted(scheduler, req)
        original(scheduler, req, is_retracted=is_retracted)
        if teams.requests.in_lockstep(req):
            scheduler.waiting_queue.sort(key=lambda one: not teams.requests.in_lockstep(one))
        return None


def _end_retracted(scheduler: Any, req: StepReq) -> None:
    if scheduler._engine_paused:
        message = "the step was taken back by /pause_generation: pause in_place to keep steps"
        abort(scheduler, req, message, HTTPStatus.CONFLICT)
    else:
        message = pool_message(scheduler, req, "ran out while the step was being written")
        abort(scheduler, req, message, HTTPStatus.SERVICE_UNAVAILABLE)


class AbortRequestPatch(Patch):
    """Lets ``/abort_request`` reach steps that wait outside SGLang's queues too.

    Why: SGLang looks for the request in its own queues only."""

    target = f"{SCHEDULER}.abort_request"
    parameters = ("self", "recv_req")
    relies_on = ("req.rid.startswith(recv_req.rid)",)

    def around(self, original: Callable, scheduler: Any, recv_req: Any) -> None:
        original(scheduler, recv_req)
        teams = teams_of(scheduler)
        if teams is None:
            return
        for req in teams.requests.out_of_queue():
            if recv_req.abort_all or req.rid.startswith(recv_req.rid):
                abort(scheduler, req, "Aborted", HTTPStatus.CONFLICT)
