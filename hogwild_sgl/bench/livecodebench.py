"""LiveCodeBench: competition programming, pass@1 (livecodebench/code_generation_lite).

A program passes if it passes all public and private tests, each run in a sandboxed
process (see `hogwild_sgl.bench.sandbox`). Columns: ``question_content``, ``starter_code``,
``public_test_cases``, ``private_test_cases``, ``metadata`` (with ``func_name``),
``question_id``, ``difficulty``, ``platform``.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict

from hogwild_sgl.bench.sandbox import Limits, barriers
from hogwild_sgl.bench.sandbox.code_tests import CodeTest, check, read_tests
from hogwild_sgl.bench.suite.command import benchmark_family
from hogwild_sgl.bench.suite.data import Example, HubSource, Row, column, examples_from
from hogwild_sgl.bench.suite.task import Given, Score, Task

# The data set grows by files; release N is all files up to the Nth.
RELEASES = ("test.jsonl", *(f"test{n}.jsonl" for n in range(2, 7)))
LIMITS = Limits(seconds=6.0, memory_bytes=4 << 30)

_STDIN = "Read the input from standard input and print the output, nothing else."
_STARTER = "Complete this code and keep its names:\n\n```python\n{}\n```"


def _example(name: str, row: Row) -> Example:
    where = f"row {name}"
    starter = str(row.get("starter_code") or "").strip("\n")
    metadata = row.get("metadata") or {}
    metadata = json.loads(metadata) if isinstance(metadata, str) else metadata
    tests = read_tests(row.get("public_test_cases"), row.get("private_test_cases"))
    if not tests:
        raise ValueError("neither public nor private tests")
    function = metadata.get("func_name")
    if any(test.kind == "functional" for test in tests) and not function:
        raise ValueError("functional tests, but no func_name in the metadata")
    content = str(column(row, ("question_content",), where)).strip()
    task = _STARTER.format(starter) if starter else _STDIN
    return Example(
        name,
        f"{content}\n\n{task}",
        {"tests": [asdict(test) for test in tests], "function": function},
        {key: str(row.get(key) or "") for key in ("difficulty", "platform", "contest_date")},
    )


def examples(rows: Sequence[Row]) -> list[Example]:
    return examples_from(rows, _example)


def scorer(limits: Limits) -> Callable[[Example, Given], Score]:
    """Grades programs under these limits per test."""

    def score(example: Example, given: Given) -> Score:
        if given.answer is None:
            return Score(0.0, detail="no program")
        tests = [CodeTest(**test) for test in example.gold["tests"]]
        verdict = check(given.answer, tests, example.gold["function"], limits)
        detail = f"{verdict.outcome} after {verdict.tests} of {len(tests)} tests {verdict.detail}"
        return Score(float(verdict.passed), detail=detail.strip())

    return score


def task(release: int) -> Task:
    """The benchmark with the problems of the first ``release`` files, 1 to 6."""
    return Task(
        name=f"livecodebench_v{release}",
        title=f"LiveCodeBench v{release}, pass@1",
        prompts="code",
        examples=examples,
        columns="`question_content`, `starter_code`, `public_test_cases`, "
        "`private_test_cases`, `metadata`",
        score=scorer(LIMITS),
        finisher_tokens=2048,
        hub=HubSource("livecodebench/code_generation_lite", files=RELEASES[:release]),
        settings={"release": release, "limits": asdict(LIMITS)},
        notes={"sandbox": barriers()},
    )


app = benchmark_family(
    {str(n): task(n) for n in range(1, len(RELEASES) + 1)},
    option="release",
    default="5",
    title="LiveCodeBench",
    module="livecodebench",
)

if __name__ == "__main__":
    app()
