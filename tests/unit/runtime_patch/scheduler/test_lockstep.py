"""Which steps of a team sit out a forward, and until when."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from runtime_patch.scheduler.lockstep import PATIENCE, give_up, held_rows, waits
from runtime_patch.scheduler.team import Team
from runtime_patch.team_request import Kind


@dataclass
class Step:
    worker: int
    rid: str = ""
    team: str = "hw-1"
    kind: Kind = Kind.STEP
    forwards: int = 3
    grammar_ready: bool = True
    aborting: bool = False


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


def test_a_team_waits_for_a_step_whose_grammar_is_still_compiled(team):
    team.add(Step(0))
    team.add(Step(1, grammar_ready=False))
    assert waits(team, chunking=False)
    team.live[1].grammar_ready = True
    assert not waits(team, chunking=False)


def test_after_a_while_the_missing_workers_are_waited_for_no_longer(team):
    team.add(Step(1))
    assert not give_up(team, 100.0)
    assert not give_up(team, 100.0 + PATIENCE)
    assert give_up(team, 100.1 + PATIENCE)
    assert team.lockstep == {1} and team.together


def test_a_worker_whose_grammar_takes_too_long_is_not_waited_for_either(team):
    team.add(Step(0))
    team.add(Step(1, grammar_ready=False))
    assert not give_up(team, 100.0)
    assert give_up(team, 100.1 + PATIENCE)
    assert team.lockstep == {0} and team.together


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


def test_only_the_steps_of_a_waiting_team_sit_out_and_an_aborting_one_does_not():
    class Ordinary:
        rid = "x"

    batch = [
        *(Ordinary(), Step(0), Step(1, aborting=True), Step(0, team="hw-2")),
        *(Step(None, kind=Kind.READER), Step(2)),
    ]
    assert held_rows(batch, {"hw-1"}) == [1, 5]
    assert held_rows(batch, set()) == []
