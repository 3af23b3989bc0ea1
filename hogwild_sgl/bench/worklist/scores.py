"""The scores of an experiment: kept on disk as they come, summed up per arm."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from hogwild_sgl.bench.report.stats import Estimate, estimate
from hogwild_sgl.bench.worklist.arms import Arm
from hogwild_sgl.bench.worklist.simulate import Collaboration
from hogwild_sgl.prompts import WORKER_NAMES
from hogwild_sgl.transcript import Result, append_result, load_results
from hogwild_sgl.worklist.score import Score, score
from hogwild_sgl.worklist.task import Task, task_of

RESAMPLES = 10_000


class Transcripts:
    """The transcripts of an experiment in a folder, one file for each arm."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder

    def done(self, arm: Arm) -> dict[int, Result]:
        """Finished tasks by number, which is their run's seed."""
        path = self._path(arm)
        if not path.exists():
            return {}
        # A run that was killed may have left half a line.
        lines = path.read_text().split("\n")
        if lines[-1]:
            path.write_text("\n".join(lines[:-1]) + "\n" if lines[:-1] else "")
        return {result.seed: result for result in load_results(path)}

    def add(self, arm: Arm, result: Result) -> None:
        append_result(self._path(arm), result)

    def _path(self, arm: Arm) -> Path:
        return self._folder / f"{arm.name}.jsonl"


@dataclass(frozen=True)
class ArmScores:
    """How an arm did, task by task."""

    arm: Arm
    tasks: tuple[Task, ...]
    scores: tuple[Score, ...]

    @classmethod
    def of(cls, arm: Arm, results: Sequence[Result]) -> ArmScores:
        tasks = tuple(task_of(result.problem) for result in results)
        return cls(arm, tasks, tuple(map(score, tasks, results)))

    @cached_property
    def passes(self) -> tuple[float, ...]:
        """Passes until the last line; the whole budget where it was never written."""
        return tuple(float(s.passes or self.arm.budget) for s in self.scores)

    @cached_property
    def repeated(self) -> Estimate:
        """Share of the lines on items that somebody else's had made needless."""
        return _mean([s.repeated / s.lines if s.lines else 0.0 for s in self.scores])

    @cached_property
    def all_right(self) -> Estimate:
        return _mean([float(s.all_right) for s in self.scores])

    @cached_property
    def final_right(self) -> Estimate:
        return _mean([float(s.final_right) for s in self.scores])

    @cached_property
    def references(self) -> Estimate:
        return _mean([float(s.references) for s in self.scores])

    @cached_property
    def mean_passes(self) -> Estimate:
        return _mean(self.passes)

    @cached_property
    def perfect_passes(self) -> float:
        """Mean of passes until the last line of workers that follow the rules of the simulation,
        on the same tasks."""
        arm, taken = self.arm, []
        layout = "interleaved" if arm.blind else arm.layout
        for number, task in enumerate(self.tasks):
            rng = random.Random(f"perfect {number}")
            team = Collaboration(task, WORKER_NAMES[: arm.workers], layout, rng)
            team.run()
            taken.append(team.passes)
        return sum(taken) / len(taken)

    def finished_by(self, passes: np.ndarray) -> np.ndarray:
        """Mean share of the items that are finished at each of ``passes``."""
        shares = [
            (np.array([[at] for at, _ in s.finished] or [[np.inf]]) <= passes).sum(0) / s.items
            for s in self.scores
        ]
        return np.mean(shares, axis=0)


def _mean(values: Sequence[float]) -> Estimate:
    found = estimate({str(number): [value] for number, value in enumerate(values)})
    assert found is not None, "an arm has at least one task"
    return found


def ratio(above: Sequence[float], below: Sequence[float]) -> Estimate:
    """Ratio of two means with a percentile bootstrap interval, tasks drawn together: both
    have the same tasks in the same order."""
    if len(above) != len(below) or not len(above):
        raise ValueError(f"{len(above)} and {len(below)} tasks cannot be compared")
    a, b = np.array(above), np.array(below)
    drawn = np.random.default_rng(0).integers(0, len(a), (RESAMPLES, len(a)))
    ratios = a[drawn].mean(1) / b[drawn].mean(1)
    low, high = np.quantile(ratios, [0.025, 0.975])
    mean = float(a.mean() / b.mean())
    return Estimate(mean, min(float(low), mean), max(float(high), mean), len(a), "paired bootstrap")
