"""OlympiadBench: olympiad mathematics and physics, English, text only, open-ended
(Hothan/OlympiadBench).

Rows come in two shapes: the hub's (``question``, ``context``, ``final_answer``, ``unit``,
``error``, ...) and a plain one (``question``, ``answer``), as in local files. Physics
answers are graded to within the tolerance that the row gives in ``error``, which is
absolute and may list one tolerance per answer.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hogwild_sgl.answers.extract import equal, split_answers
from hogwild_sgl.answers.spelling import clean
from hogwild_sgl.bench.suite.command import benchmark_family
from hogwild_sgl.bench.suite.data import Example, HubSource, Row, column, examples_from
from hogwild_sgl.bench.suite.task import Given, Score, Task

_CONFIG = {"maths": "OE_TO_maths_en_COMP", "physics": "OE_TO_physics_en_COMP"}


def _gold(row: Row, name: str) -> list[str]:
    found = column(row, ("final_answer", "answer"), f"row {name}")
    golds = [str(answer) for answer in found] if isinstance(found, list) else [str(found)]
    if not all(clean(gold) for gold in golds):
        raise ValueError(f"an empty answer in {golds}")
    return golds


def _tolerances(error: Any) -> list[float]:
    if error in (None, ""):
        return [0.0]
    try:
        return [float(part) for part in str(error).split(",")]
    except ValueError:
        raise ValueError(f"`error` is a number or a list of numbers, got {error!r}") from None


def _example(name: str, row: Row) -> Example:
    parts = [
        str(row.get("context") or ""),
        str(column(row, ("question", "problem"), f"row {name}")),
    ]
    if row.get("unit"):
        parts.append(f"Give the answer in the unit {row['unit']}, and the number only.")
    if row.get("is_multiple_answer"):
        parts.append("There is more than one answer: put all of them into one box, with commas.")
    gold = {"answers": _gold(row, name), "tolerances": _tolerances(row.get("error"))}
    text = "\n\n".join(part.strip() for part in parts if part.strip())
    return Example(name, text, gold, {"subfield": row.get("subfield") or ""})


def examples(rows: Sequence[Row]) -> list[Example]:
    """Rows with pictures are passed over: they cannot be put to a text model."""
    text_only = [row for row in rows if not any(row.get(f"image_{n}") for n in range(1, 10))]
    return examples_from(text_only, _example)


def score(example: Example, given: Given) -> Score:
    """Right if it equals the gold answer, or lists all of them in any order."""
    if given.answer is None:
        return Score(0.0, detail="no answer")
    golds, tolerances = example.gold["answers"], example.gold["tolerances"]
    detail = f"{given.answer} for {', '.join(golds)}"
    if len(golds) == 1 and len(tolerances) == 1:
        return Score(float(equal(given.answer, golds[0], tolerances[0])), detail=detail)
    if len(golds) == 1:
        # One text that lists several answers, each with a tolerance of its own.
        listed = split_answers(golds[0], len(tolerances))
        golds = [answer or "" for answer in listed] if listed else golds
    if len(tolerances) != len(golds):
        tolerances = [max(tolerances)] * len(golds)
    answers = split_answers(given.answer, len(golds)) or []
    return Score(float(_match(answers, golds, tolerances)), detail=detail)


def _match(
    answers: Sequence[str | None], golds: Sequence[str], tolerances: Sequence[float]
) -> bool:
    """Whether the answers can be paired off with the golds."""
    if len(answers) != len(golds):
        return False
    left = list(answers)
    for gold, tolerance in zip(golds, tolerances, strict=True):
        found = next((a for a in left if equal(a, gold, tolerance)), None)
        if found is None:
            return False
        left.remove(found)
    return True


def task(subject: str) -> Task:
    """``maths`` or ``physics``."""
    return Task(
        name=f"olympiadbench_{subject}",
        title=f"OlympiadBench {subject}",
        prompts="maths",
        examples=examples,
        columns="`question`, and `answer` or `final_answer`",
        score=score,
        hub=HubSource("Hothan/OlympiadBench", _CONFIG[subject], "train"),
        settings={"subject": subject},
    )


app = benchmark_family(
    {name: task(name) for name in _CONFIG},
    option="subject",
    default="maths",
    title="OlympiadBench",
    module="olympiadbench",
)

if __name__ == "__main__":
    app()
