"""LIMO: 817 hard mathematics problems, the paper's main benchmark (GAIR/LIMO)."""

from __future__ import annotations

from collections.abc import Sequence

from hogwild_sgl.answers.spelling import clean
from hogwild_sgl.bench.suite.command import benchmark
from hogwild_sgl.bench.suite.data import Example, HubSource, Row, column, examples_from
from hogwild_sgl.bench.suite.task import Task, score_single

# Accuracy in percent by budget, two workers, QwQ-32B.
_PAPER = {
    "baseline with finisher": {1024: 13.7, 4096: 48.4, 8192: 76.2},
    "independent": {1024: 16.4, 4096: 52.3, 8192: 79.3},
    "contiguous": {1024: 31.4, 4096: 68.2, 8192: 83.8},
    "interleaved": {1024: 11.9, 4096: 67.0, 8192: 88.7},
    "combined": {1024: 29.7, 4096: 72.3, 8192: 89.1},
}


def _example(name: str, row: Row) -> Example:
    gold = clean(str(column(row, ("answer",), f"row {name}")))
    return Example(name, str(column(row, ("question", "problem"), f"row {name}")), gold)


def examples(rows: Sequence[Row]) -> list[Example]:
    """Columns ``question``, ``answer`` (``solution`` is not used)."""
    return examples_from(rows, _example)


TASK = Task(
    name="limo",
    title="LIMO",
    prompts="maths",
    examples=examples,
    columns="`question` (or `problem`), `answer`",
    score=score_single,
    hub=HubSource("GAIR/LIMO", split="train"),
    published=_PAPER,
    source="Hogwild! Inference (arXiv:2504.06261), QwQ-32B, two workers",
)

app = benchmark(TASK)

if __name__ == "__main__":
    app()
