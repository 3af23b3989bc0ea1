"""Means with confidence intervals."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np

LEVEL = 0.95
RESAMPLES = 10_000


@dataclass(frozen=True)
class Estimate:
    """A mean, its interval at `LEVEL`, the number of independent problems behind it, and how
    the interval was made: ``wilson`` or ``bootstrap``."""

    mean: float
    low: float
    high: float
    count: int
    method: str

    def __post_init__(self) -> None:
        if not self.low <= self.mean <= self.high:
            raise ValueError(f"mean {self.mean} outside its interval {self.low} to {self.high}")


def wilson(successes: int, count: int, level: float = LEVEL) -> tuple[float, float]:
    """Wilson's score interval for a proportion. ``ValueError`` without trials."""
    if not 0 <= successes <= count or count < 1:
        raise ValueError(f"{successes} successes of {count}")
    z = NormalDist().inv_cdf((1 + level) / 2)
    share = successes / count
    centre = share + z * z / (2 * count)
    spread = z * math.sqrt(share * (1 - share) / count + z * z / (4 * count * count))
    scale = 1 + z * z / count
    # The exact bounds at 0 and 1 must not miss them by a rounding error.
    low = 0.0 if successes == 0 else (centre - spread) / scale
    high = 1.0 if successes == count else (centre + spread) / scale
    return low, high


def estimate(
    values: Mapping[str, Sequence[float]], level: float = LEVEL, seed: int = 0
) -> Estimate | None:
    """The mean over problems of the mean over each problem's runs.

    values: the grades of each problem's runs (seeds), by problem.

    Runs of one problem are not independent, so problems are what is counted and
    resampled: with one right-or-wrong grade per problem the interval is Wilson's, else a
    percentile bootstrap over problems (with a fixed seed). Where all grades are 0 or all
    are 1 resampling would see no spread at all, so that the interval is Wilson's too.
    None without values.
    """
    kept = [grades for grades in values.values() if len(grades)]
    if not kept:
        return None
    means = np.array([sum(grades) / len(grades) for grades in kept], dtype=float)
    mean = float(means.mean())
    single = all(len(grades) == 1 and grades[0] in (0, 1) for grades in kept)
    if single or mean in (0.0, 1.0):
        low, high = wilson(int(means.sum()), len(kept), level)
        return Estimate(mean, min(low, mean), max(high, mean), len(kept), "wilson")
    low, high = _bootstrap(means, level, seed)
    return Estimate(mean, min(low, mean), max(high, mean), len(kept), "bootstrap")


def difference(
    values: Mapping[str, Sequence[float]],
    baseline: Mapping[str, Sequence[float]],
    level: float = LEVEL,
    seed: int = 0,
) -> Estimate | None:
    """The mean difference to a baseline over the problems that both have, paired by problem.

    The interval is a percentile bootstrap over problems. None without common problems.
    """
    common = [name for name in values if values[name] and baseline.get(name)]
    if not common:
        return None
    pairs = [(values[name], baseline[name]) for name in common]
    means = np.array([sum(a) / len(a) - sum(b) / len(b) for a, b in pairs], dtype=float)
    mean = float(means.mean())
    low, high = _bootstrap(means, level, seed)
    return Estimate(mean, min(low, mean), max(high, mean), len(common), "paired bootstrap")


def _bootstrap(means: np.ndarray, level: float, seed: int) -> tuple[float, float]:
    random = np.random.default_rng(seed)
    # In chunks, so that thousands of problems do not need gigabytes.
    chunk = max(1, 2_000_000 // len(means))
    resampled = np.concatenate(
        [
            means[random.integers(0, len(means), (min(chunk, RESAMPLES - at), len(means)))].mean(1)
            for at in range(0, RESAMPLES, chunk)
        ]
    )
    low, high = np.quantile(resampled, [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)


def steps_to(curve: Mapping[int, float], target: float) -> float | None:
    """The smallest budget at which the curve reaches ``target``.

    Straight lines between the measured budgets; None if it is not reached. A curve that is
    above from its first budget on gives that budget: below it nothing was measured.
    """
    budgets = sorted(curve)
    for at, budget in enumerate(budgets):
        if curve[budget] >= target:
            if at == 0:
                return float(budget)
            before = budgets[at - 1]
            rise = curve[budget] - curve[before]
            return before + (budget - before) * (target - curve[before]) / rise
    return None
