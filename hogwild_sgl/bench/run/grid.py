"""What a run consists of: every program, layout, team size and seed on every problem."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hogwild_sgl import seeds
from hogwild_sgl.bench.suite.data import Example
from hogwild_sgl.errors import UserError
from hogwild_sgl.transcript import Result

MOST_WORKERS = 16


@dataclass(frozen=True)
class Job:
    """One run of a program on one problem: all that a program is told.

    budgets: ascending, in forward passes. The run may use the last; the answer is wanted
        at each. seed: of this run alone. layout: None for a program without a team.
    options: what is the same for all runs, as fields of `Settings`.
    """

    url: str
    problem: str
    workers: int
    layout: str | None
    budgets: tuple[int, ...]
    seed: int
    options: Mapping[str, Any]


@dataclass(frozen=True)
class Program:
    """A program as the runner sees it.

    fewest, most: team sizes it can have. layouts: whether it has one. probes: whether it
    answers at every budget in one run; otherwise it is run once for each budget.
    """

    name: str
    about: str
    run: Callable[[Job], Result]
    fewest: int = 2
    most: int = MOST_WORKERS
    layouts: bool = True
    probes: bool = True

    def __post_init__(self) -> None:
        if not 1 <= self.fewest <= self.most <= MOST_WORKERS:
            raise ValueError(f"{self.name}: {self.fewest} to {self.most} workers")


@dataclass(frozen=True)
class Setting:
    """One line of a report: a program with its layout and team size."""

    program: str
    layout: str | None
    workers: int

    @property
    def label(self) -> str:
        parts = [self.program, self.layout or "", f"x{self.workers}" if self.workers > 1 else ""]
        return " ".join(part for part in parts if part)


@dataclass(frozen=True)
class Unit:
    """One program run: the smallest thing that is done or not done."""

    setting: Setting
    example: Example
    seed: int
    budgets: tuple[int, ...]

    @property
    def key(self) -> str:
        budgets = ",".join(map(str, self.budgets))
        return f"{self.setting.label} | {budgets} | seed {self.seed} | {self.example.id}"

    def stream_seed(self, master: int, task: str) -> int:
        """The seed handed to the program: this unit's own, from the run's master seed."""
        return seeds.sampling_seed(
            master, task, self.example.id, self.setting.label, *self.budgets, self.seed
        )


def check_budgets(budgets: Sequence[int]) -> tuple[int, ...]:
    """The budgets, ascending and each once. `UserError` if one is not positive or none is given."""
    if not budgets or min(budgets) < 1:
        raise UserError(f"Budgets are positive numbers of forward passes, got {list(budgets)}", "")
    return tuple(sorted(set(budgets)))


def settings_of(
    programs: Sequence[Program], layouts: Sequence[str], workers: Sequence[int]
) -> list[Setting]:
    """Every combination that exists. `UserError` if a program fits none of the team sizes."""
    found: list[Setting] = []
    for program in programs:
        sizes = [n for n in workers if program.fewest <= n <= program.most]
        if program.most == program.fewest:
            sizes = [program.fewest]
        if not sizes:
            raise UserError(
                f"{program.name} works with {program.fewest} to {program.most} workers, "
                f"not with {list(workers)}.",
                "Change --workers, or leave the program out.",
            )
        for layout in layouts if program.layouts else [None]:
            found += [Setting(program.name, layout, size) for size in sizes]
    return list(dict.fromkeys(found))


def units_of(
    programs: Sequence[Program],
    settings: Sequence[Setting],
    examples: Sequence[Example],
    seed_count: int,
    budgets: Sequence[int],
) -> list[Unit]:
    """All units, problem by problem, so that partial results compare the same problems."""
    if seed_count < 1:
        raise UserError(f"--seeds must be at least 1, got {seed_count}", "")
    budgets = check_budgets(budgets)
    probes = {program.name: program.probes for program in programs}
    return [
        Unit(setting, example, seed, part)
        for example in examples
        for seed in range(seed_count)
        for setting in settings
        for part in ([budgets] if probes[setting.program] else [(b,) for b in budgets])
    ]
