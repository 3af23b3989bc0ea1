"""When a team's request may run: the one place that puts it into SGLang's queue."""

from __future__ import annotations

from collections.abc import Callable

from runtime_patch.scheduler.step_req import Stage, StepReq
from runtime_patch.scheduler.team import Team
from runtime_patch.team_request import Kind


def may_run(team: Team, req: StepReq) -> bool:
    """Its predecessor is published, its grammar compiled, and nobody in lockstep is missing."""
    if req.stage is not Stage.WAITING or not req.grammar_ready:
        return False
    in_lockstep = req.kind is Kind.STEP and req.worker in team.lockstep
    return team.together or not in_lockstep


def queue_ready(team: Team, enqueue: Callable[[StepReq], None]) -> None:
    """Queue what may run: steps in worker order, then readers and outside voices."""
    for req in [*(step for _, step in sorted(team.live.items())), *team.others.values()]:
        if may_run(team, req):
            req.stage = Stage.QUEUED
            enqueue(req)
