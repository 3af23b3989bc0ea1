"""From a program's result to grades at each budget."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from hogwild_sgl.bench.run.grid import Unit
from hogwild_sgl.bench.suite.task import Given, Task
from hogwild_sgl.transcript import Result

_LONGEST_GOLD = 1000


def given_at(result: Result, budget: int) -> Given:
    """The answer at a budget: what a probe read then, or the final one if the run had ended.

    ``ValueError`` if the run went on beyond the budget and nothing was read there.
    """
    for probe in result.probes:
        if probe.budget == budget:
            return Given(probe.answer, probe.text)
    if budget >= result.budget or result.passes <= budget:
        return Given(result.answer, result.final_text)
    read = [probe.budget for probe in result.probes]
    raise ValueError(
        f"{result.program} went on for {result.passes} passes, and its answer was read at {read} "
        f"only, not at {budget}"
    )


def grade(task: Task, unit: Unit, result: Result) -> list[dict[str, Any]]:
    """One record per budget: the grade, its parts, the answer, and passes used by then."""
    return [_grade_at(task, unit, result, budget) for budget in unit.budgets]


def _grade_at(task: Task, unit: Unit, result: Result, budget: int) -> dict[str, Any]:
    given = given_at(result, budget)
    score = task.score(unit.example, given)
    return {
        "budget": budget,
        "value": score.value,
        "parts": list(score.parts),
        "answer": given.answer,
        "detail": score.detail,
        "passes": min(result.passes, budget),
    }


def _short(gold: Any) -> Any:
    """A gold answer as results keep it: tests of a program can be megabytes long."""
    length = len(json.dumps(gold, ensure_ascii=False))
    return gold if length <= _LONGEST_GOLD else f"({length} characters, see the data)"


def record_of(unit: Unit, result: Result, scores: Sequence[dict[str, Any]], url: str) -> dict:
    """The line that is kept of a finished unit."""
    return {
        "unit": unit.key,
        "digest": unit.example.digest,
        "program": unit.setting.program,
        "layout": unit.setting.layout,
        "workers": unit.setting.workers,
        "example": unit.example.id,
        "meta": dict(unit.example.meta),
        "seed": unit.seed,
        "gold": _short(unit.example.gold),
        "scores": list(scores),
        "server": url,
        "result": json.loads(result.to_json()),
    }
