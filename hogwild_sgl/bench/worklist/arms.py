"""What is compared: one way for a team to work on worklists."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from hogwild_sgl.bench.worklist.simulate import LAYOUTS
from hogwild_sgl.program.settings import Settings
from hogwild_sgl.worklist.format import FORMATTING

CHECK_EVERY = 64  # generated tokens between redundancy checks, where there are any
LIMIT = 60  # sequential forward passes for each item, at most


@dataclass(frozen=True)
class Arm:
    """workers, layout, temperature as they say. items: in each list. checks: whether
    redundancy checks are put. blind: with the planted bug, workers do not see each other's
    live steps."""

    workers: int
    layout: str = "combined"
    items: int = 16
    checks: bool = False
    temperature: float = 0.7
    blind: bool = False

    def __post_init__(self) -> None:
        if not 1 <= self.workers <= 8:
            raise ValueError(f"the model knows 8 names: 1 to 8 workers, got {self.workers}")
        if self.layout not in LAYOUTS:
            raise ValueError(f"layout is one of {LAYOUTS}, got {self.layout!r}")
        if self.blind and self.layout != "combined":
            raise ValueError("only the combined layout shows live steps, so only it can be blind")
        if self.workers == 1 and (self.layout != "combined" or self.checks or self.blind):
            raise ValueError("a worker alone has nobody to see, and no checks")

    @property
    def name(self) -> str:
        """For files and tables."""
        parts = [f"{self.workers}w", "blind" if self.blind else self.layout]
        parts += [f"{self.items}items", f"t{self.temperature:g}", *["checks"] * self.checks]
        return "-".join(parts if self.workers > 1 else [parts[0], *parts[2:]])

    @property
    def budget(self) -> int:
        return LIMIT * self.items

    def settings(self, seed: int) -> Settings:
        return Settings(
            formatting=FORMATTING,
            budget=self.budget,
            seed=seed,
            temperature=self.temperature,
            top_p=1.0,
            workers=self.workers,
            layout=self.layout,
            check_every=CHECK_EVERY if self.checks else 0,
        )


def every_arm() -> Iterator[Arm]:
    """The whole experiment."""
    for temperature in (0.0, 0.7):
        for items in (4, 8, 16, 24):
            yield Arm(1, items=items, temperature=temperature)
        for workers in (2, 3, 4):
            for layout in LAYOUTS:
                for checks in (False, True):
                    yield Arm(workers, layout, checks=checks, temperature=temperature)
            yield Arm(workers, temperature=temperature, blind=True)


def reach_arms() -> Iterator[Arm]:
    """What the figures with targets need."""
    for items in (4, 8, 16):
        yield Arm(1, items=items)
    for layout in ("combined", "interleaved", "independent"):
        yield Arm(2, layout)
    yield Arm(2, blind=True)
    yield Arm(4)
