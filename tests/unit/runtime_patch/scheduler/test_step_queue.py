"""When a team's requests are put into SGLang's queue, and in which order."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from runtime_patch.scheduler.step_queue import may_run, queue_ready
from runtime_patch.scheduler.step_req import Stage
from runtime_patch.scheduler.team import Team
from runtime_patch.team_request import Kind


@dataclass
class Step:
    worker: int | None
    kind: Kind = Kind.STEP
    stage: Stage = Stage.WAITING
    grammar_ready: bool = True
    rid: str = "reader"


@pytest.fixture
def team() -> Team:
    team = Team("hw-1", 3, "combined", False)
    team.lockstep = {0, 1}
    return team


def queued(team: Team) -> list[int | None]:
    steps = []
    queue_ready(team, steps.append)
    return [step.worker for step in steps]


def test_steps_that_wait_for_each_other_are_queued_together_in_worker_order(team):
    team.add(Step(1))
    team.add(Step(2))
    assert queued(team) == [2], "worker 2 is not in the lockstep"
    team.add(Step(0))
    assert queued(team) == [0, 1]
    assert {step.stage for step in team.live.values()} == {Stage.QUEUED}
    assert queued(team) == [], "each is queued once"


def test_a_grammar_that_is_still_compiled_holds_back_its_step_and_those_in_lockstep(team):
    team.add(Step(0))
    team.add(Step(1, grammar_ready=False))
    team.add(Step(None, kind=Kind.READER))
    assert queued(team) == [None], "a reader is in no lockstep"
    team.live[1].grammar_ready = True
    assert queued(team) == [0, 1]


@pytest.mark.parametrize("stage", [Stage.AHEAD, Stage.QUEUED, Stage.ENDED])
def test_what_is_ahead_queued_or_ended_is_not_queued(team, stage):
    assert not may_run(team, Step(2, stage=stage))
    assert may_run(team, Step(2))
