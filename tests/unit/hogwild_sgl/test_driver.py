"""The driver against a simulated team, whose workers and timing hypothesis makes up."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hogwild_sgl import prompts
from hogwild_sgl.driver.commands import (
    CheckRule,
    Command,
    Done,
    ReadAnswer,
    Rules,
    SayHint,
    WorkerStart,
    Write,
)
from hogwild_sgl.driver.driver import Driver
from tests.unit.hogwild_sgl.simulated_team import EN, NAMES, Team, finishes, gaps, lengths


@given(
    budget=st.integers(1, 120),
    workers=st.integers(2, 3),
    step_tokens=st.none() | st.integers(1, 20),
    lengths=lengths,
    finishes=finishes,
    gaps=gaps,
    start=st.integers(0, 500),
)
def test_no_run_outlasts_its_budget_and_none_ends_before_it(
    budget, workers, step_tokens, lengths, finishes, gaps, start
):
    rules = Rules(NAMES[:workers], EN, budget, step_tokens=step_tokens)
    team = Team(Driver(rules, passes=start), lengths, finishes, gaps, forwards=start)
    done = team.run()
    assert done == Done("budget")
    assert team.forwards - start == budget
    assert all(write.until == start + budget for write in team.of(Write))
    if step_tokens is not None:
        assert all(write.max_new_tokens <= step_tokens for write in team.of(Write))
    assert team.driver.poll() == []


@given(budget=st.integers(1, 120), lengths=lengths, finishes=finishes)
def test_without_gaps_every_worker_gets_exactly_the_budget(budget, lengths, finishes):
    team = Team(Driver(Rules(NAMES, EN, budget)), lengths, finishes)
    team.run()
    assert team.forwards == budget
    assert team.driver.tokens == 3 * budget


@given(budget=st.integers(1, 80), lengths=lengths, finishes=finishes, gaps=gaps)
def test_each_workers_steps_are_numbered_from_one(budget, lengths, finishes, gaps):
    team = Team(Driver(Rules(NAMES, EN, budget)), lengths, finishes, gaps)
    team.run()
    for worker, name in enumerate(NAMES):
        writes = [write for write in team.written if write.worker == worker]
        assert [write.number for write in writes] == list(range(1, len(writes) + 1))
        for write in writes:
            assert write.text.endswith(f"**{name} [{write.number}]:** ")


@given(lengths=lengths, finishes=finishes)
def test_a_steps_separator_is_left_to_the_server_where_the_step_before_is_not_over(
    lengths, finishes
):
    team = Team(Driver(Rules(NAMES[:2], EN, 60)), lengths, finishes)
    team.run()
    for write in team.of(Write):
        assert write.ahead == (write.number > 1)
        assert write.separator == ("\n\n" if write.ahead else "")
        assert write.text.startswith("\n\n") != write.ahead


@given(budget=st.integers(1, 120), lengths=lengths, finishes=finishes)
def test_one_step_ahead_a_worker_loses_no_forward(budget, lengths, finishes):
    team = Team(Driver(Rules(NAMES, EN, budget)), [n + 1 for n in lengths], finishes)
    team.run()
    for worker in range(3):
        starts = [at for at, write in team.begun if write.worker == worker]
        tokens = [at for at in starts] + [budget]
        assert starts[0] == 0
        assert team.ended[worker] == budget
        assert sum(b - a for a, b in zip(tokens, tokens[1:], strict=False)) == budget
    assert team.driver.tokens == 3 * budget


def test_what_comes_late_is_put_into_the_step_that_has_not_been_asked_for():
    driver = Driver(Rules(NAMES[:2], EN, 50))
    driver.poll()
    driver.started(0, 0)
    driver.started(1, 0)
    first = driver.poll()
    assert [(write.worker, write.number, write.ahead) for write in first] == [
        (0, 2, True),
        (1, 2, True),
    ]
    driver.steer(0, "So: ")
    assert driver.poll() == []
    for _ in range(3):
        driver.progressed(0, "x", 1)
        driver.progressed(1, "x", 1)
    driver.published(0, text="xxx", output_tokens=3, passes=3, finish="sentence")
    driver.started(0, 3)
    driver.progressed(1, "x", 1)
    driver.progressed(0, "x", 1)
    (third,) = driver.poll()
    assert third.number == 3 and third.text.endswith("So: ")


@given(
    budget=st.integers(2, 60),
    lengths=lengths,
    finishes=finishes,
    seed=st.integers(0, 99),
    order=st.randoms(use_true_random=False),
)
def test_commands_do_not_depend_on_which_workers_messages_come_first(
    budget, lengths, finishes, seed, order
):
    rules = Rules(NAMES, EN, budget, seed, check=CheckRule(15))

    def writes(mixed: bool) -> list[tuple]:
        driver = Driver(rules)
        team = Team(Late(driver, order if mixed else None), [n + 2 for n in lengths], finishes)
        team.run()
        return sorted((w.worker, w.number, w.text, w.seed) for w in team.written), driver.checks

    assert writes(True) == writes(False)


class Late:
    """A driver whose workers' messages arrive in another order, each worker's in its own."""

    def __init__(self, driver: Driver, order) -> None:
        self.driver, self.order, self.left = driver, order, driver.left
        self.messages: dict[int, list] = {}

    def poll(self) -> list[Command]:
        waiting = [w for w, calls in self.messages.items() if calls]
        while waiting:
            worker = self.order.choice(waiting) if self.order else waiting[0]
            calls = self.messages[worker]
            name, args, more = calls.pop(0)
            getattr(self.driver, name)(*args, **more)
            waiting = [w for w, calls in self.messages.items() if calls]
        return self.driver.poll()

    def __getattr__(self, name: str):
        def later(first, *args, **more) -> None:
            worker = first.worker if isinstance(first, Write) else first
            self.messages.setdefault(worker, []).append((name, (first, *args), more))

        return later


@given(
    budget=st.integers(1, 60),
    share=st.lists(st.floats(0, 1), min_size=1, max_size=5),
    lengths=lengths,
    gaps=gaps,
)
def test_each_probe_is_read_once_and_as_soon_as_its_passes_are_used(budget, share, lengths, gaps):
    at = tuple(max(1, round(s * budget)) for s in share)
    team = Team(Driver(Rules(NAMES, EN, budget, probe_at=at)), lengths, ["sentence"], gaps)
    seen: list[tuple[int, int]] = []
    carry_out = team.carry_out

    def note(command):
        if isinstance(command, ReadAnswer):
            seen.append((command.budget, team.forwards))
        carry_out(command)

    team.carry_out = note
    team.run()
    assert [budget for budget, _ in seen] == sorted(set(at))
    assert all(forwards == budget for budget, forwards in seen)
    assert team.driver.unprobed == ()


def test_probes_change_nothing_of_the_run():
    def writes(probe_at: tuple[int, ...]) -> list[Write]:
        rules = Rules(NAMES, EN, 80, 5, check=CheckRule(30), probe_at=probe_at)
        team = Team(Driver(rules), [7, 4, 9], ["sentence", "stop"])
        team.run()
        return team.of(Write)

    assert writes(()) == writes((1, 10, 40, 80))


def test_hints_are_said_in_order_when_their_passes_are_used():
    rules = Rules(NAMES, EN, 50, hints=((30, "late"), (10, "early")))
    team = Team(Driver(rules), [5], ["sentence"])
    said: list[tuple[str, int]] = []
    carry_out = team.carry_out

    def note(command):
        if isinstance(command, SayHint):
            said.append((command.text, team.forwards))
        carry_out(command)

    team.carry_out = note
    team.run()
    assert said == [("early", 10), ("late", 30)]


def test_the_run_ends_with_the_first_finished_step_that_holds_an_answer():
    rules = Rules(
        NAMES, EN, 90, stop=lambda step: "42" if step.number == 2 and step.worker == 1 else None
    )
    team = Team(Driver(rules, None), [5, 8, 3], ["sentence"])
    done = team.run()
    assert done == Done("stop", "42")
    assert team.forwards < 90
    assert team.live, "the others' steps stay live for the finisher"


def test_a_stop_rule_that_only_says_true_leaves_the_answer_to_the_finisher():
    team = Team(Driver(Rules(NAMES, EN, 90, stop=lambda step: True)), [5], ["sentence"])
    assert team.run() == Done("stop", None)


def test_a_worker_that_ends_its_turn_writes_no_more_and_the_others_go_on():
    team = Team(Driver(Rules(NAMES[:2], EN, 40)), [5], ["sentence"])
    forward = team.forward

    def ends(worker=0):
        if worker in team.live:
            team.live[worker].finish = "eos"
        forward()

    team.forward = ends
    assert team.run() == Done("budget")
    writes = team.written
    assert sum(write.worker == 0 for write in writes) == 1
    assert sum(write.worker == 1 for write in writes) > 1


def test_when_all_workers_have_ended_the_run_is_over():
    team = Team(Driver(Rules(NAMES, EN, 1000)), [5], ["eos"])
    assert team.run() == Done("workers_ended")
    assert team.forwards < 20


def test_a_driver_takes_over_where_the_workers_stand():
    starts = [WorkerStart(steps=4, separated=True), WorkerStart()]
    chosen = prompts.formatting("maths")
    driver = Driver(Rules(NAMES[:2], chosen, 10), starts, passes=77)
    alice, bob = driver.poll()
    assert alice.text == "**Alice [5]:** "
    assert bob.text.startswith("\n\n**Bob [1]:** I am Bob.")
    assert alice.max_new_tokens == 10
    assert alice.until == bob.until == 87
    driver.started(0, 79)
    driver.progressed(0, "x", 1)
    assert driver.passes == 3


@given(lengths=lengths, finishes=finishes, gaps=gaps, seed=st.integers(0, 99))
def test_the_same_seed_and_the_same_events_give_the_same_commands(lengths, finishes, gaps, seed):
    def log() -> list[Command]:
        rules = Rules(NAMES, EN, 60, seed, check=CheckRule(25), probe_at=(30,))
        team = Team(Driver(rules), lengths, finishes, list(gaps))
        team.run()
        return team.log

    assert log() == log()


def test_no_two_steps_share_a_sampling_seed():
    team = Team(Driver(Rules(NAMES, EN, 100, 3)), [5, 4], ["sentence"])
    team.run()
    seeds = [write.seed for write in team.of(Write)]
    assert len(set(seeds)) == len(seeds)
    other = Team(Driver(Rules(NAMES, EN, 100, 4)), [5, 4], ["sentence"])
    other.run()
    assert not set(seeds) & {write.seed for write in other.of(Write)}


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"budget": 0}, "budget"),
        ({"workers": ("Alice",)}, "2 to 16"),
        ({"step_tokens": 0}, "at least one token"),
        ({"probe_at": (11,)}, "outside the budget"),
        ({"max_retries": -1}, "retries"),
        ({"hints": ((3, ""),)}, "hint"),
    ],
)
def test_rules_that_make_no_sense_are_refused(change, complaint):
    values = {"workers": NAMES, "formatting": EN, "budget": 10, **change}
    with pytest.raises(ValueError, match=complaint):
        Rules(**values)


def test_events_of_workers_without_a_live_step_are_refused():
    driver = Driver(Rules(NAMES, EN, 10))
    with pytest.raises(ValueError, match="Alice has no live step"):
        driver.progressed(0, "x", 1)
    with pytest.raises(ValueError, match="worker 7"):
        driver.dropped(7)
    with pytest.raises(ValueError, match="every 0 tokens"):
        CheckRule(0)
    with pytest.raises(ValueError, match="who"):
        CheckRule(5, "nobody")
