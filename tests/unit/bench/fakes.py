"""A benchmark with a scripted program: sums, answered right or wrong by a known rule."""

from __future__ import annotations

import time
from pathlib import Path

from hogwild_sgl.bench.run.grid import Job, Program
from hogwild_sgl.bench.run.start import Plan
from hogwild_sgl.bench.suite.data import Example, examples_from
from hogwild_sgl.bench.suite.task import Task, score_single
from hogwild_sgl.transcript import Probe
from tests.unit.bench.build import result, step


def rows(count):
    return [{"question": f"What is {n} + {n}?", "answer": str(2 * n)} for n in range(count)]


def _examples(table):
    return examples_from(table, lambda name, row: Example(name, row["question"], row["answer"]))


SUMS = Task(
    name="sums",
    title="Sums",
    prompts="maths",
    examples=_examples,
    score=score_single,
    builtin=tuple(rows(12)),
    budgets=(10, 20, 40),
    published={"paper": {10: 20.0, 40: 80.0}},
    source="nowhere",
)


def answers(job: Job):
    """Right from budget 20 on for even numbers, from 40 on for the others."""
    number = int(job.problem.split()[2])
    for budget in job.budgets:
        right = budget >= (20 if number % 2 == 0 else 40)
        yield budget, str(2 * number) if right else "0"


def scripted(seconds=0.0, log=None, fail=None, name="team", **options):
    """A program that answers by `answers`; ``log`` gets a line per run, ``fail`` may raise."""

    def run(job: Job):
        if log is not None:
            with open(log, "a") as file:
                file.write(f"{job.problem} | {job.layout} | {job.budgets} | {job.seed}\n")
        if fail is not None:
            fail(job)
        time.sleep(seconds)
        given = list(answers(job))
        probes = [Probe(b, b, b / 10, f"{a}}}. ", a, 4) for b, a in given[:-1]]
        return result(
            step(0, "Bob, I take the first half of this sum.", 0, job.budgets[-1] // 2),
            step(1, "Then I check your half, Alice.", 0, job.budgets[-1]),
            problem=job.problem,
            program=name,
            answer=given[-1][1],
            final_text=f"{given[-1][1]}}}",
            probes=tuple(probes),
            budget=job.budgets[-1],
            passes=job.budgets[-1],
            seed=job.seed,
            settings={"layout": job.layout},
        )

    return Program(name, "answers sums from a script", run, **options)


def plan(folder, **changes):
    """A plan for `SUMS` on two servers that are never asked."""
    fields = {
        "task": SUMS,
        "urls": ("http://one", "http://two"),
        "data": None,
        "out": Path(folder),
        "limit": None,
        "concurrency": 2,
        "patience": 1.0,
        "programs": ["team"],
        "layouts": ["combined"],
        "workers": [2],
        "budgets": (10, 20, 40),
        "seeds": 1,
        "seed": 0,
        "given": {"formatting": "maths-en", "temperature": 0.6, "hints": ()},
    }
    return Plan(**{**fields, **changes})
