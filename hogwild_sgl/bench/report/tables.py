"""The tables of a report, as Markdown."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from hogwild_sgl.bench.report.stats import Estimate, difference, steps_to
from hogwild_sgl.bench.report.summary import Summary

TARGETS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
BASELINE = "single"


def escape(value: object, longest: int = 60) -> str:
    """A value as a table cell of its own: one line, no markup, cut where it is long."""
    text = " ".join(str(value).split())
    text = text if len(text) <= longest else text[: longest - 1] + "…"
    text = text.replace("&", "&amp;").replace("<", "&lt;")
    return re.sub(r"[\\`*_\[\]|#~$>]", r"\\\g<0>", text)


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table; all columns but the first are aligned right."""
    align = ["---", *["---:"] * (len(head) - 1)]
    lines = [head, align, *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def percent(found: Estimate | None) -> str:
    if found is None:
        return ""
    return f"{100 * found.mean:.1f} ({100 * found.low:.1f}–{100 * found.high:.1f})"


def accuracy(summaries: Sequence[Summary]) -> str:
    budgets = sorted({budget for summary in summaries for budget in summary.curve})
    rows = []
    for summary in summaries:
        count = max((found.count for found in summary.curve.values()), default=0)
        cells = [percent(summary.curve.get(budget)) for budget in budgets]
        rows.append([escape(summary.setting.label), str(count), *cells])
    return table(["program", "problems", *map(str, budgets)], rows)


def all_right(summaries: Sequence[Summary]) -> str | None:
    if not any(summary.all_right for summary in summaries):
        return None
    budgets = sorted({budget for summary in summaries for budget in summary.all_right})
    parts = max(len(summary.parts) for summary in summaries)
    rows = [
        [
            escape(summary.setting.label),
            *[percent(summary.all_right.get(budget)) for budget in budgets],
            *[f"{100 * grade:.1f}" for grade in summary.parts],
        ]
        for summary in summaries
    ]
    head = ["program", *[f"all right at {budget}" for budget in budgets]]
    return table([*head, *[f"question {n}" for n in range(1, parts + 1)]], rows)


def differences(summaries: Sequence[Summary]) -> str | None:
    """Accuracy minus that of the single writer, in points; None without one."""
    baseline = next((s for s in summaries if s.setting.program == BASELINE), None)
    others = [s for s in summaries if s is not baseline and s.curve]
    if baseline is None or not baseline.curve or not others:
        return None
    budgets = sorted(baseline.curve)
    rows = []
    for summary in others:
        found = [
            difference(summary.grades.get(budget, {}), baseline.grades[budget])
            for budget in budgets
        ]
        rows.append([escape(summary.setting.label), *map(percent, found)])
    return table(["program", *map(str, budgets)], rows)


def steps(
    summaries: Sequence[Summary],
    published: Mapping[str, Mapping[int, float]],
    targets: Sequence[float],
) -> str | None:
    """Forward passes to each target that at least one measured curve reaches."""
    curves = {
        summary.setting.label: {budget: found.mean for budget, found in summary.curve.items()}
        for summary in summaries
        if summary.curve
    }
    reached = [t for t in targets if any(steps_to(c, t) is not None for c in curves.values())]
    if not reached:
        return None
    for label, curve in published.items():
        curves[f"published: {label}"] = {b: value / 100 for b, value in curve.items()}
    rows = []
    for label, curve in curves.items():
        cells = []
        for target in reached:
            found = steps_to(curve, target)
            first = found is not None and found == min(curve)
            cells.append("" if found is None else f"{'≤ ' if first else ''}{found:.0f}")
        rows.append([escape(label, 80), *cells])
    return table(["program", *[f"{100 * t:g}%" for t in reached]], rows)


def costs(summaries: Sequence[Summary]) -> str:
    head = [
        "program",
        "runs",
        "critical path, passes",
        "of these finisher",
        "tokens",
        "wall time, s",
        "ms per pass",
        "KV slots, mean",
        "KV slots, peak",
    ]
    rows = [
        [
            escape(summary.setting.label),
            str(cost.runs),
            f"{cost.passes:.1f}",
            f"{cost.finisher_passes:.1f}",
            f"{cost.tokens:.1f}",
            f"{cost.seconds:.2f}",
            f"{1000 * cost.seconds_per_pass:.1f}",
            f"{cost.kv_mean:.1f}",
            str(cost.kv_peak),
        ]
        for summary in summaries
        for cost in [summary.cost]
    ]
    return table(head, rows)


def collaboration(summaries: Sequence[Summary]) -> str | None:
    shown = [s for s in summaries if s.measures is not None and s.measures.steps]
    if not shown:
        return None
    head = [
        "program",
        "steps",
        "references per step",
        "steps that refer",
        "redundant text",
        "corrections",
        "that stand",
        "checks: yes / no / unclear",
        "idle text",
        "own text repeated",
    ]
    rows = [
        [
            escape(summary.setting.label),
            str(m.steps),
            f"{m.references_per_step:.2f}",
            f"{100 * m.referring_share:.1f}%",
            f"{100 * m.redundant_share:.1f}%",
            str(m.corrections),
            str(m.standing),
            f"{m.checks_yes} / {m.checks_no} / {m.checks_unclear}",
            f"{100 * m.idle_share:.1f}%",
            f"{100 * m.repeated_share:.1f}%",
        ]
        for summary in shown
        for m in [summary.measures]
    ]
    return table(head, rows)


def judged(summaries: Sequence[Summary]) -> str | None:
    questions = sorted({name for summary in summaries for name in summary.judged})
    if not questions:
        return None
    rows = []
    for summary in summaries:
        found = [summary.judged.get(name) for name in questions]
        cells = [f"{score[0]:.2f} ({score[1]})" if score else "" for score in found]
        rows.append([escape(summary.setting.label), *cells])
    return table(["program", *map(escape, questions)], rows)


def groups(summaries: Sequence[Summary], field: str) -> str:
    names = sorted({name for summary in summaries for name in summary.groups.get(field, {})})
    rows = []
    for summary in summaries:
        found = summary.groups.get(field, {})
        rows.append([escape(summary.setting.label), *[percent(found.get(n)) for n in names]])
    return table(["program", *map(escape, names)], rows)


def singles(records: Sequence[Mapping[str, Any]]) -> str:
    """Some graded answers, each with what it was graded against."""
    rows = []
    for record in records:
        gold = record["gold"]
        gold = gold if isinstance(gold, str) else json.dumps(gold, ensure_ascii=False)
        for score in record["scores"]:
            value = "" if score["value"] is None else f"{score['value']:g}"
            rows.append(
                [
                    escape(record["unit"], 90),
                    str(score["budget"]),
                    escape(score["answer"] or "none"),
                    escape(gold),
                    value,
                ]
            )
    return table(["run", "budget", "answer", "right answer", "grade"], rows)
