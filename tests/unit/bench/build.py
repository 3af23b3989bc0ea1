"""Transcripts, data files and graded answers for tests, in a few words."""

from __future__ import annotations

import json

from hogwild_sgl.bench.suite.task import Given
from hogwild_sgl.transcript import Check, Probe, Result, Step


def step(worker, text, start, end, *, workers=("Alice", "Bob"), kind="step", fed="", number=1):
    name = None if worker is None else workers[worker]
    return Step(
        kind=kind,
        worker=worker,
        name=name,
        number=None if worker is None else number,
        index=0 if kind in ("step", "said") else None,
        fed=fed,
        text=text,
        fed_tokens=1,
        output_tokens=max(1, end - start),
        start_pass=start,
        end_pass=end,
        start_seconds=start / 10,
        end_seconds=end / 10,
        finish="sentence",
    )


def result(*steps, workers=("Alice", "Bob"), problem="Add the numbers.", **changes):
    ordered = sorted(steps, key=lambda s: s.end_pass)
    fields = {
        "program": "team",
        "problem": problem,
        "answer": "5",
        "final_text": "5}",
        "workers": tuple(workers),
        "steps": tuple(ordered),
        "budget": 100,
        "stopped": "budget",
        "passes": 100,
        "finisher_passes": 3,
        "tokens": tuple(
            sum(s.output_tokens for s in steps if s.worker == n) for n in range(len(workers))
        ),
        "prompt_tokens": 10,
        "kv_tokens": 300,
        "seconds": 12.5,
        "seed": 1,
        "started_at": 1.0,
        "settings": {"layout": "combined"},
    }
    return Result(**{**fields, **changes})


def check(answer, worker=0):
    return Check(worker, ("Alice", "Bob")[worker], 1, 64, 32, answer)


def probe(budget, answer, text=None):
    text = f"{answer}}}" if text is None else text
    return Probe(budget, budget, budget / 10, text, answer, 5)


def write(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return str(path)


def grade(task, example, answer, text=None):
    text = f"{answer}}}" if text is None else text
    return task.score(example, Given(answer, text))
