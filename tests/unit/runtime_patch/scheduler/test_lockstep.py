"""Which steps of a team sit out a forward, and until when."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from runtime_patch.scheduler.lockstep import PATIENCE, give_up, held_rows, release, waits
from runtime_patch.scheduler.team import Kind, Team


@dataclass
class Step:
    worker: int
    rid: str = ""
    team: str = "hw-1"
    kind: Kind = Kind.STEP
    forwards: int = 3
    parked: bool = False
    doomed: bool = False


@pytest.fixture
def team() -> Team:
    team = Team("hw-1", 3, "combined", False)
    team.lockstep = {0, 1}
    return team


def test_a_team_waits_until_every_worker_in_lockstep_has_a_live_step(team):
    assert waits(team, chunking=False)
    team.add(Step(0))
    team.add(Step(2))
    assert waits(team, chunking=False)
    team.add(Step(1))
    assert not waits(team, chunking=False)


def test_a_team_without_lockstep_never_waits(team):
    team.lockstep = set()
    assert not waits(team, chunking=True) and not give_up(team, 1e9)


def test_a_step_that_is_about_to_begin_is_waited_for_while_a_long_prompt_comes_first(team):
    team.add(Step(0))
    team.add(Step(1, forwards=0))
    assert waits(team, chunking=True) and not waits(team, chunking=False)


def test_steps_that_wait_for_each_other_are_queued_together_in_worker_order(team):
    queued = []
    team.add(Step(1, parked=True))
    team.add(Step(2, parked=True))
    release(team, queued.append)
    assert [step.worker for step in queued] == [2], "worker 2 is not in the lockstep"
    team.add(Step(0, parked=True))
    release(team, queued.append)
    assert [step.worker for step in queued] == [2, 0, 1]
    assert not any(step.parked for step in queued)
    release(team, queued.append)
    assert len(queued) == 3


def test_after_a_while_the_missing_workers_are_waited_for_no_longer(team):
    team.add(Step(1))
    assert not give_up(team, 100.0)
    assert not give_up(team, 100.0 + PATIENCE)
    assert give_up(team, 100.1 + PATIENCE)
    assert team.lockstep == {1} and team.together


def test_the_time_counts_from_when_the_team_began_to_wait(team):
    give_up(team, 100.0)
    team.add(Step(0))
    team.add(Step(1))
    assert not give_up(team, 103.0)
    team.remove(team.live[0])
    assert not give_up(team, 104.0) and not give_up(team, 103.9 + PATIENCE)
    assert give_up(team, 104.1 + PATIENCE)


def test_ranks_without_a_common_clock_never_give_up(team):
    team.add(Step(1))
    assert not give_up(team, 0.0)
    assert team.waiting_since is None and not team.together


def test_only_the_steps_of_a_waiting_team_sit_out_and_a_doomed_one_does_not():
    class Ordinary:
        rid = "x"

    batch = [
        *(Ordinary(), Step(0), Step(1, doomed=True), Step(0, team="hw-2")),
        *(Step(None, kind=Kind.READER), Step(2)),
    ]
    assert held_rows(batch, {"hw-1"}) == [1, 5]
    assert held_rows(batch, set()) == []
