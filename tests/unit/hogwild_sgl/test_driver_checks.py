"""Redundancy checks of the driver: who is asked, how often, and what an answer changes."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from hogwild_sgl.driver.commands import Answered, CheckRule, Rules, Write
from hogwild_sgl.driver.driver import Driver
from tests.unit.hogwild_sgl.simulated_team import EN, NAMES, Team, lengths


@given(
    every=st.integers(1, 50),
    budget=st.integers(1, 100),
    lengths=lengths,
    who=st.sampled_from(["random", "first"]),
    seed=st.integers(0, 2**32),
)
def test_checks_come_as_often_as_asked_for(every, budget, lengths, who, seed):
    rules = Rules(NAMES, EN, budget, seed, check=CheckRule(every, who))
    team = Team(Driver(rules), lengths, ["sentence"], text="no ")
    team.run()
    asked = [write for write in team.written if write.check]
    assert len(asked) <= team.driver.tokens // every
    assert all(write.text.endswith(EN.check_text) for write in asked)
    assert not any(EN.check_text in w.text for w in team.of(Write) if not w.check)
    answered = {(check.worker, check.number) for check in team.driver.checks}
    assert answered == {(write.worker, write.number) for write in asked}
    assert all(check.answer == "no" for check in team.driver.checks)
    assert all(check.tokens >= every for check in team.driver.checks)
    if who == "first":
        assert {write.worker for write in asked} <= {0}


def test_a_check_is_put_to_a_worker_drawn_from_the_seed_and_to_different_ones():
    def asked(seed: int) -> list[int]:
        rules = Rules(NAMES, EN, 400, seed, check=CheckRule(40))
        team = Team(Driver(rules), [5, 7, 3], ["sentence"])
        team.run()
        return [write.worker for write in team.written if write.check]

    assert asked(1) == asked(1)
    assert set(asked(1)) == {0, 1, 2}
    assert asked(1) != asked(2)


def test_all_workers_are_asked_when_all_are_to_be():
    rules = Rules(NAMES, EN, 20, check=CheckRule(30, "all"))
    team = Team(Driver(rules), [5], ["sentence"])
    team.run()
    assert {write.worker for write in team.of(Write) if write.check} == {0, 1, 2}


def act(team: Team, on_check) -> None:
    """Calls ``on_check`` with each check that is answered."""
    carry_out = team.carry_out

    def see(command):
        if isinstance(command, Answered):
            on_check(command.check)
        carry_out(command)

    team.carry_out = see


def test_a_yes_can_steer_the_workers_next_step_but_one():
    rules = Rules(NAMES[:2], EN, 60, check=CheckRule(10, "first"))
    driver = Driver(rules)
    team = Team(driver, [5], ["sentence"], text="yes ")
    act(team, lambda check: driver.steer(check.worker, "I turn to the rest: "))
    team.run()
    alices = [write for write in team.written if write.worker == 0]
    after = [b for a, b in zip(alices, alices[2:], strict=False) if a.check]
    assert after and all(check.answer == "yes" for check in driver.checks)
    assert all("I turn to the rest: " in write.text for write in after)
    assert not any("I turn" in write.text for write in team.written if write.worker == 1)


def test_checks_can_be_made_more_frequent_while_the_team_runs():
    def checks(then: CheckRule | None) -> int:
        driver = Driver(Rules(NAMES[:2], EN, 200, check=CheckRule(100)))
        team = Team(driver, [5], ["sentence"])
        act(team, lambda check: then and len(driver.checks) == 1 and driver.set_check(then))
        team.run()
        return len(driver.checks)

    assert checks(CheckRule(20)) > 2 * checks(None)
