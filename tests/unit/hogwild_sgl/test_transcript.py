import dataclasses
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hogwild_sgl.transcript import (
    Check,
    Probe,
    Result,
    Step,
    TranscriptError,
    append_result,
    load_results,
    save_results,
)

text = st.text(max_size=20)
count = st.integers(0, 10_000)
seconds = st.floats(0, 1e6, allow_nan=False)


@st.composite
def steps(draw, workers: int) -> Step:
    start, began = draw(count), draw(seconds)
    return Step(
        kind=draw(st.sampled_from(["step", "said", "dropped", "reader"])),
        worker=draw(st.none() | st.integers(0, workers - 1)),
        name=draw(st.none() | text),
        number=draw(st.none() | count),
        index=draw(st.none() | count),
        fed=draw(text),
        text=draw(text),
        fed_tokens=draw(count),
        output_tokens=draw(count),
        start_pass=start,
        end_pass=start + draw(count),
        start_seconds=began,
        end_seconds=began + draw(seconds),
        history_start=draw(st.none() | count),
        history_published=draw(st.none() | count),
        finish=draw(text),
    )


@st.composite
def results(draw) -> Result:
    workers = draw(st.integers(1, 4))
    return Result(
        program=draw(text),
        problem=draw(text),
        answer=draw(st.none() | text),
        final_text=draw(text),
        workers=tuple(f"w{i}" for i in range(workers)),
        steps=tuple(draw(st.lists(steps(workers), max_size=3))),
        budget=draw(count),
        stopped="budget",
        passes=draw(count),
        finisher_passes=draw(count),
        tokens=tuple(draw(st.lists(count, min_size=workers, max_size=workers))),
        prompt_tokens=draw(count),
        kv_tokens=draw(count),
        seconds=draw(seconds),
        seed=draw(st.integers(0, 2**63)),
        started_at=draw(seconds),
        checks=(Check(0, "w0", 2, 10, 5, draw(st.sampled_from(["yes", "no", "unclear"]))),),
        probes=(Probe(8, 9, 1.5, draw(text), draw(st.none() | text), 3),),
        settings={"layout": "combined", "nested": {"list": (1, 2), "text": draw(text)}},
    )


@given(results())
def test_a_result_read_back_equals_what_was_written(result):
    line = result.to_json()
    assert "\n" not in line
    assert Result.from_json(line) == result


def make(**changes) -> Result:
    values = dict(
        program="team",
        problem="p",
        answer="1",
        final_text="1}",
        workers=("Alice", "Bob"),
        steps=(),
        budget=8,
        stopped="budget",
        passes=8,
        finisher_passes=2,
        tokens=(5, 7),
        prompt_tokens=3,
        kv_tokens=20,
        seconds=1.0,
        seed=0,
        started_at=0.0,
    )
    return Result(**{**values, **changes})


def test_results_are_appended_one_a_line_and_all_come_back(tmp_path):
    path = tmp_path / "runs.jsonl"
    runs = [make(seed=seed, problem="1 + 1?\n换行") for seed in range(3)]
    for run in runs:
        append_result(path, run)
    assert len(path.read_text(encoding="utf-8").splitlines()) == 3
    assert list(load_results(path)) == runs
    save_results(path, runs[:1])
    assert list(load_results(path)) == runs[:1]


def test_a_torn_line_is_reported_with_file_and_line(tmp_path):
    path = tmp_path / "runs.jsonl"
    append_result(path, make())
    with path.open("a") as file:
        file.write(make().to_json()[:200] + "\n")
    read = load_results(path)
    assert next(read) == make()
    with pytest.raises(TranscriptError, match=r"runs\.jsonl, line 2"):
        next(read)


@pytest.mark.parametrize("missing", ["answer", "steps", "tokens"])
def test_a_result_that_lacks_a_field_is_refused(missing):
    data = json.loads(make().to_json())
    del data[missing]
    with pytest.raises(TranscriptError):
        Result.from_json(json.dumps(data))


def test_a_result_with_a_field_nobody_knows_is_refused():
    data = {**json.loads(make().to_json()), "mood": "good"}
    with pytest.raises(TranscriptError, match="mood"):
        Result.from_json(json.dumps(data))


def test_a_result_of_another_format_is_refused():
    data = {**json.loads(make().to_json()), "format": 99}
    with pytest.raises(TranscriptError, match="format 1"):
        Result.from_json(json.dumps(data))


def test_token_counts_must_fit_the_workers():
    with pytest.raises(ValueError, match="1 token counts for 2 workers"):
        make(tokens=(5,))


def test_the_answer_at_a_budget_comes_from_its_probe():
    run = make(probes=(Probe(4, 4, 0.1, "7}", "7", 2), Probe(8, 8, 0.2, "", None, 0)))
    assert run.answer_at(4) == "7"
    assert run.answer_at(8) is None
    with pytest.raises(KeyError, match=r"\[4, 8\]"):
        run.answer_at(5)


def test_a_step_cannot_end_before_it_began():
    good = Step("step", 0, "Alice", 1, 0, "", "x", 1, 1, 3, 4, 0.0, 1.0)
    assert good.full_text == "x"
    with pytest.raises(ValueError, match="from pass 3 to 2"):
        dataclasses.replace(good, end_pass=2)
    with pytest.raises(ValueError, match="kind"):
        dataclasses.replace(good, kind="thought")
