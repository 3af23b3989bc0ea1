"""AIME 2024 and 2025: 30 problems each, answers are integers from 0 to 999."""

from __future__ import annotations

from collections.abc import Sequence

from hogwild_sgl.answers.spelling import clean
from hogwild_sgl.bench.suite.command import benchmark_family
from hogwild_sgl.bench.suite.data import Example, HubSource, Row, column, examples_from
from hogwild_sgl.bench.suite.task import Task, score_single

_HUB = {
    2024: HubSource("HuggingFaceH4/aime_2024", split="train"),
    2025: HubSource("math-ai/aime25", split="test"),
}


def _example(name: str, row: Row) -> Example:
    gold = clean(str(column(row, ("answer",), f"row {name}")))
    if not gold.isdigit() or not 0 <= int(gold) <= 999:
        raise ValueError(f"an AIME answer is an integer from 0 to 999, got {gold!r}")
    problem = str(column(row, ("question", "problem"), f"row {name}"))
    return Example(name, problem, str(int(gold)))


def examples(rows: Sequence[Row]) -> list[Example]:
    """Columns ``question`` (or ``problem``) and ``answer``."""
    return examples_from(rows, _example)


def task(year: int) -> Task:
    """The benchmark of one year, 2024 or 2025."""
    return Task(
        name=f"aime{year}",
        title=f"AIME {year}",
        prompts="maths",
        examples=examples,
        columns="`question` (or `problem`), `answer`",
        score=score_single,
        hub=_HUB[year],
        settings={"year": year},
    )


app = benchmark_family(
    {str(year): task(year) for year in _HUB},
    option="year",
    default="2025",
    title="AIME",
    module="aime",
)

if __name__ == "__main__":
    app()
