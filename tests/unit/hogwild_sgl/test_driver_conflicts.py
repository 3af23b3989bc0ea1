"""Steps that the driver drops and asks for again."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hogwild_sgl.driver.commands import AbortStep, CheckRule, LiveText, Rules
from hogwild_sgl.driver.driver import Driver
from tests.unit.hogwild_sgl.simulated_team import EN, NAMES, Team, lengths


def conflict_on(worker: int):
    def rule(finished, live: LiveText) -> bool:
        return live.worker == worker and finished.number % 2 == 0

    return rule


@settings(max_examples=50)
@given(budget=st.integers(20, 80), lengths=lengths, retries=st.integers(0, 3))
def test_a_step_in_conflict_is_dropped_and_written_again_at_most_so_often(budget, lengths, retries):
    rules = Rules(NAMES, EN, budget, conflict=conflict_on(2), max_retries=retries)
    team = Team(Driver(rules), lengths, ["sentence"])
    team.run()
    writes = [write for write in team.written if write.worker == 2]
    for before, after in zip(writes, writes[1:], strict=False):
        if after.number == before.number:
            assert after.attempt == before.attempt + 1
            assert after.text.removeprefix("\n\n") == before.text.removeprefix("\n\n")
            assert after.seed != before.seed
        else:
            assert after.number == before.number + 1
    begun = [write.number for write in writes]
    assert max(begun.count(number) for number in begun) <= retries + 1
    aborted = len(team.of(AbortStep))
    repeated = len(begun) - len(set(begun))
    # An abort in the last passes leaves none to write the step again with.
    assert repeated <= aborted <= repeated + 1


def test_a_conflict_really_drops_a_step():
    rules = Rules(NAMES, EN, 80, conflict=conflict_on(2), max_retries=1)
    team = Team(Driver(rules), [4, 9, 13], ["sentence"])
    team.run()
    assert team.of(AbortStep)


def test_a_dropped_step_and_the_one_behind_it_keep_what_they_were_to_begin_with():
    driver = Driver(Rules(NAMES[:2], EN, 50, check=CheckRule(3, "first")))
    driver.poll()
    driver.steer(0, "So: ")
    driver.started(0, 0)
    driver.started(1, 0)
    second = next(write for write in driver.poll() if write.worker == 0)
    for worker in (0, 1):
        for _ in range(3):
            driver.progressed(worker, "x", 1)
    driver.published(0, text="xxx", output_tokens=3, passes=3, finish="sentence")
    driver.started(0, 3)
    driver.progressed(1, "x", 1)
    driver.progressed(0, "x", 1)
    (third,) = driver.poll()
    assert "So: " in second.text and third.check
    driver.dropped(0)
    driver.not_begun(third)
    (again,) = driver.poll()
    assert (again.number, again.attempt, again.ahead) == (2, 2, False)
    assert again.text.removeprefix("\n\n") == second.text and again.seed != second.seed
    driver.started(0, 5)
    driver.progressed(1, "x", 2)
    (behind,) = driver.poll()
    assert (behind.text, behind.check, behind.attempt) == (third.text, True, 2)


def test_a_step_that_is_dropped_for_ever_is_an_error_and_no_endless_loop():
    driver = Driver(Rules(NAMES[:2], EN, 50))
    driver.poll()
    with pytest.raises(RuntimeError, match=r"Alice \[1\] has been dropped"):
        for _ in range(100):
            driver.dropped(0)
            driver.poll()


def test_a_step_that_somebody_else_overtook_is_asked_for_again():
    driver = Driver(Rules(NAMES[:2], EN, 50))
    first, _ = driver.poll()
    driver.not_begun(first)
    (again,) = driver.poll()
    assert (again.number, again.attempt, again.ahead) == (1, 2, False)
