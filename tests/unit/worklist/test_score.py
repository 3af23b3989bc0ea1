"""Scores of transcripts: what counts as finished, right, repeated."""

from __future__ import annotations

from contextlib import nullcontext
from types import SimpleNamespace

import pytest

from hogwild_sgl.bench.worklist import run
from hogwild_sgl.bench.worklist.arms import Arm, every_arm, reach_arms
from hogwild_sgl.bench.worklist.figures import figures
from hogwild_sgl.bench.worklist.report import plots, table
from hogwild_sgl.bench.worklist.scores import ArmScores, Transcripts, ratio
from hogwild_sgl.driver.commands import FinishedStep
from hogwild_sgl.errors import ServerGone
from hogwild_sgl.program.settings import Settings
from hogwild_sgl.transcript import Result, Step
from hogwild_sgl.worklist import words
from hogwild_sgl.worklist.format import FORMATTING, last_line
from hogwild_sgl.worklist.score import score
from hogwild_sgl.worklist.task import Item, Task

FOX, OWL = Item("fox", 27, 58), Item("owl", 12, 31)
TASK = Task((FOX, OWL))


def step(index: int, worker: int, text: str, end: int, fed: str = "") -> Step:
    name = ("Alice", "Bob")[worker]
    return Step(
        kind="step",
        worker=worker,
        name=name,
        number=index + 1,
        index=index,
        fed=fed + words.header(name, index + 1),
        text=text,
        fed_tokens=3,
        output_tokens=20,
        start_pass=0,
        end_pass=end,
        start_seconds=0.0,
        end_seconds=1.0,
    )


def result(*steps: Step, seed: int = 0) -> Result:
    return Result(
        program="worklist",
        problem=TASK.prompt,
        answer=None,
        final_text="",
        workers=("Alice", "Bob"),
        steps=steps,
        budget=100,
        stopped="stop",
        passes=max([0, *(s.end_pass for s in steps)]),
        finisher_passes=0,
        tokens=(0, 0),
        prompt_tokens=9,
        kv_tokens=99,
        seconds=1.0,
        seed=seed,
        started_at=0.0,
    )


def test_a_list_whose_items_and_last_line_are_right_is_all_right():
    found = score(
        TASK,
        result(
            step(0, 0, FOX.line() + words.BREAK, 20),
            step(1, 1, OWL.line() + words.BREAK, 21),
            step(2, 0, TASK.final() + words.BREAK, 29),
        ),
    )
    assert found.all_right and found.final_right
    assert (found.passes, found.lines, found.repeated, found.references) == (29, 2, 0, 0)
    assert found.finished == ((20, "fox"), (21, "owl"))


def test_a_wrong_digit_makes_an_item_wrong_and_a_later_right_line_does_not_mend_it():
    wrong = FOX.line().replace("85.", "84.")
    found = score(TASK, result(step(0, 0, wrong, 20), step(1, 1, FOX.line(), 21)))
    assert found.right == 0 and not found.all_right
    assert found.lines == 2 and found.repeated == 1


def test_only_whole_lines_are_work_and_names_of_others_are_references():
    found = score(
        TASK,
        result(
            step(0, 0, FOX.line(), 20),
            step(1, 1, " fox is with Alice.", 9),
            step(2, 1, " Waiting for Alice.", 14),
        ),
    )
    assert (found.lines, found.repeated, found.references) == (1, 0, 2)
    assert found.passes is None and not found.final_right


def test_the_answer_to_a_check_is_not_part_of_the_line():
    asked = words.header("Alice", 1) + words.CHECK
    found = score(TASK, result(step(0, 0, " no," + FOX.line(), 22, fed=asked)))
    assert found.right == 1


def test_a_last_line_that_is_wrong_ends_the_work_but_is_not_right():
    found = score(TASK, result(step(0, 0, " All done: smallest 43, largest 86.", 8)))
    assert found.passes == 8 and not found.final_right


def test_the_stop_rule_gives_what_the_last_line_says():
    def finished(text: str) -> FinishedStep:
        return FinishedStep(0, "Alice", 1, "", text, 9, "sentence")

    assert last_line(finished(TASK.final())) == "smallest 43, largest 85"
    assert last_line(finished(FOX.line())) is None


def test_the_formatting_writes_what_the_model_was_trained_on():
    assert FORMATTING.step_header("Alice", 12) == words.header("Alice", 12)
    assert FORMATTING.turn_start() == words.PREAMBLE
    headers = FORMATTING.headers_for(("Alice", "Bob"))
    assert headers["header_others"] == words.OTHERS and headers["header_own"] == words.OWN
    assert FORMATTING.messages("Sums: fox 27 58.", ("Alice", "Bob")) == [
        {"role": "user", "content": "Sums: fox 27 58."}
    ]


def test_transcripts_come_back_by_task_also_after_half_a_line(tmp_path):
    kept, arm = Transcripts(tmp_path), Arm(2, items=4)
    kept.add(arm, result(seed=3))
    kept.add(arm, result(seed=5))
    with (tmp_path / f"{arm.name}.jsonl").open("a") as file:
        file.write('{"format": 1, "prog')
    assert set(kept.done(arm)) == {3, 5}
    kept.add(arm, result(seed=6))
    assert set(kept.done(arm)) == {3, 5, 6}


def test_arms_have_names_of_their_own():
    arms = list(every_arm())
    assert len({arm.name for arm in arms}) == len(set(arms)) == len(arms)
    assert set(reach_arms()) <= set(arms)


def test_an_arm_that_makes_no_sense_is_refused():
    for wrong in (
        {"workers": 0},
        {"workers": 2, "layout": "round"},
        {"workers": 1, "checks": True},
    ):
        with pytest.raises(ValueError):
            Arm(**wrong)
    with pytest.raises(ValueError, match="only the combined layout"):
        Arm(2, "interleaved", blind=True)


def test_a_task_that_fails_is_played_when_the_experiment_is_started_again(
    tmp_path, monkeypatch, capsys
):
    arm, silent = Arm(2), {1}

    def solve(problem: str, settings: Settings, backend: object) -> Result:
        if settings.seed in silent:
            raise ServerGone("The server has been silent.", "Is it stuck?")
        return result(step(0, 0, TASK.final(), 9), seed=settings.seed)

    monkeypatch.setattr(run, "PROGRAM", SimpleNamespace(solve=solve))
    monkeypatch.setattr(run, "ServerProcess", lambda *_: nullcontext(SimpleNamespace(url="")))
    monkeypatch.setattr(run, "Endpoint", nullcontext)
    transcripts, done = Transcripts(tmp_path), {arm: {}}

    def play(*numbers: int) -> None:
        run._play([(arm, n) for n in numbers], tmp_path, transcripts, done, 2, total=3)

    with pytest.raises(SystemExit, match="1 tasks failed: start again"):
        play(0, 1, 2)
    assert sorted(transcripts.done(arm)) == [0, 2]
    assert "2w-combined-16items-t0.7, task 1: The server has been silent." in (
        " ".join(capsys.readouterr().err.split())
    )
    silent.clear()
    play(1)
    assert sorted(transcripts.done(arm)) == [0, 1, 2]
    # One that is gone is not asked for everything.
    silent.update(range(100))
    with pytest.raises(ServerGone):
        play(*range(3, 100))


def made_up(arm: Arm, passes: int, repeats: int = 0) -> ArmScores:
    lines = [step(i, 0, FOX.line(), 10) for i in range(1 + repeats)]
    some = [
        result(*lines, step(9, 1, OWL.line(), 12), step(10, 0, TASK.final(), passes + seed % 3))
        for seed in range(12)
    ]
    return ArmScores.of(arm, some)


def test_figures_are_ok_for_results_as_hoped_for_and_short_for_none():
    hoped = {arm: made_up(arm, 400) for arm in reach_arms()}
    hoped |= {Arm(2): made_up(Arm(2), 200), Arm(4): made_up(Arm(4), 110)}
    seen_late = made_up(Arm(2, "interleaved"), 250, repeats=3)
    hoped |= {seen_late.arm: seen_late, Arm(2, blind=True): made_up(Arm(2, blind=True), 252)}
    assert [f.name for f in figures(hoped) if not f.ok] == []
    same = {arm: made_up(arm, 400, repeats=1) for arm in reach_arms()}
    assert sum(not figure.ok for figure in figures(same)) >= 6


def test_a_ratio_has_an_interval_around_it():
    found = ratio([10.0, 12.0, 14.0] * 10, [5.0, 6.0, 7.0] * 10)
    assert found.mean == found.low == found.high == 2.0
    wide = ratio([10.0, 20.0] * 10, [5.0, 5.0] * 10)
    assert wide.low < wide.mean == 3.0 < wide.high


def test_table_and_plots_show_every_arm(tmp_path):
    found = {arm: made_up(arm, 100) for arm in every_arm() if arm.temperature == 0.7}
    text = table(found.values())
    assert all(arm.name in text for arm in found)
    for path in plots(found, 0.7, tmp_path):
        assert path.stat().st_size > 10_000
