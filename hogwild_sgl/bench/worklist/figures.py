"""The figures that the experiment is for, each with a target."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from hogwild_sgl.bench.report.stats import Estimate
from hogwild_sgl.bench.worklist.arms import Arm
from hogwild_sgl.bench.worklist.scores import ArmScores, ratio


@dataclass(frozen=True)
class Figure:
    """value, with its interval where it has one. ok: whether it reaches ``target``."""

    name: str
    value: float
    target: str
    ok: bool
    interval: tuple[float, float] | None = None

    def __str__(self) -> str:
        found = f" [{self.interval[0]:.3f}, {self.interval[1]:.3f}]" if self.interval else ""
        return f"{self.name} {self.value:.3f}{found} {self.target} {'ok' if self.ok else 'SHORT'}"


def figures(found: Mapping[Arm, ArmScores]) -> Iterator[Figure]:
    """All figures with targets; ``found`` has the arms of :func:`arms.reach_arms`."""
    alone = found[Arm(1)]
    for items in (4, 8, 16):
        share = found[Arm(1, items=items)].all_right
        yield _at_least(f"one worker, all of {items} items right", share, 0.95)
    for workers, target in ((2, 1.8), (4, 3.0)):
        faster = ratio(alone.passes, found[Arm(workers)].passes)
        yield _at_least(f"passes of 1 worker over {workers}, combined, 16 items", faster, target)
    combined, interleaved, independent, blind = (
        found[arm]
        for arm in (Arm(2), Arm(2, "interleaved"), Arm(2, "independent"), Arm(2, blind=True))
    )
    again = combined.repeated
    yield _at_most("repeated items, combined, 2 workers", again, 0.05)
    half = interleaved.repeated.mean / 2
    yield Figure(
        "the same against half of interleaved's",
        again.mean,
        f"<{half:.3f}",
        again.mean < half,
    )
    for better, worse in ((combined, interleaved), (interleaved, independent)):
        fast, slow = better.mean_passes, worse.mean_passes
        yield Figure(
            f"passes of {better.arm.layout} below {worse.arm.layout}'s, intervals apart",
            fast.mean,
            f"<{slow.mean:.1f} [{slow.low:.1f}, {slow.high:.1f}]",
            fast.high < slow.low,
            (fast.low, fast.high),
        )
    fallen = ratio(blind.passes, interleaved.passes)
    yield _at_least("passes of blind workers over interleaved's", fallen, 0.95)
    yield Figure(
        "passes of blind workers above combined's, intervals apart",
        blind.mean_passes.mean,
        f">{combined.mean_passes.mean:.1f}",
        blind.mean_passes.low > combined.mean_passes.high,
        (blind.mean_passes.low, blind.mean_passes.high),
    )


def _at_least(name: str, value: Estimate, target: float) -> Figure:
    return Figure(name, value.mean, f">={target:g}", value.mean >= target, (value.low, value.high))


def _at_most(name: str, value: Estimate, target: float) -> Figure:
    return Figure(name, value.mean, f"<={target:g}", value.mean <= target, (value.low, value.high))
