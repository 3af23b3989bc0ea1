"""The programs that benchmarks can compare; ``python -m bench.catalog`` lists them."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from hogwild_sgl.bench.run.grid import Job, Program
from hogwild_sgl.bench.run.servers import api_key
from hogwild_sgl.errors import UserError
from hogwild_sgl.transcript import Result

if TYPE_CHECKING:
    from hogwild_sgl.lang.endpoint import Endpoint

EVERYTHING = "all"


@dataclass(frozen=True)
class Variant:
    """A program of `programs` with some of its settings fixed.

    sizes: team sizes it can have. layouts: whether they matter. probes: whether one run
    answers at every budget as a run with that budget would; if not, it is run once for
    each budget. about: one line for people, if the program's own does not fit.
    """

    name: str
    program: str
    sizes: tuple[int, int] = (2, 16)
    layouts: bool = False
    probes: bool = False
    fixed: Mapping[str, Any] = field(default_factory=dict)
    about: str = ""


_TEAM: dict[str, Any] = {"layouts": True, "probes": True}
VARIANTS = (
    Variant("single", "single", (1, 1), probes=True),
    Variant(
        "self_consistency",
        "self_consistency",
        fixed={"vote": "finisher"},
        about="Independent traces, then a finisher that reads all of them (baseline).",
    ),
    Variant(
        "self_consistency_vote",
        "self_consistency",
        probes=True,
        fixed={"vote": "majority"},
        about="Independent traces, then a majority vote over their answers (baseline).",
    ),
    Variant("skeleton_of_thought", "skeleton_of_thought", (1, 1), fixed={"threads": 0}),
    Variant(
        "skeleton_of_thought_2",
        "skeleton_of_thought",
        (1, 1),
        fixed={"threads": 2},
        about="A plan, its parts shared out between two threads, a merge (baseline).",
    ),
    Variant("text_rounds", "text_rounds"),
    Variant("alice_bob", "alice_bob", (2, 2), **_TEAM),
    Variant("team", "team", **_TEAM),
    Variant("retry", "retry", **_TEAM),
    Variant(
        "hint",
        "hint",
        **_TEAM,
        about="A team solves a problem, and is told something in the middle; needs --hint.",
    ),
)


class Endpoints:
    """One backend per server, made when it is first used and shared by all threads."""

    def __init__(self) -> None:
        self._made: dict[str, Endpoint] = {}
        self._lock = threading.Lock()

    def at(self, url: str) -> Endpoint:
        from hogwild_sgl.lang.endpoint import Endpoint

        with self._lock:
            if url not in self._made:
                self._made[url] = Endpoint(url, api_key())
            return self._made[url]


def catalog() -> dict[str, Program]:
    """All programs by name."""
    endpoints = Endpoints()
    return {variant.name: _program(variant, endpoints) for variant in VARIANTS}


def _program(variant: Variant, endpoints: Endpoints) -> Program:
    from hogwild_sgl import programs
    from hogwild_sgl.program.settings import Settings

    program = programs.find(variant.program)

    def run(job: Job) -> Result:
        options = {**job.options, **variant.fixed}
        if job.layout is not None:
            options["layout"] = job.layout
        settings = Settings(
            budget=job.budgets[-1],
            probes=job.budgets[:-1],
            seed=job.seed,
            workers=job.workers,
            **options,
        )
        return program.solve(job.problem, settings, backend=endpoints.at(job.url))

    return Program(
        name=variant.name,
        about=variant.about or program.about,
        run=run,
        fewest=variant.sizes[0],
        most=variant.sizes[1],
        layouts=variant.layouts,
        probes=variant.probes,
    )


def choose(names: Sequence[str], known: Mapping[str, Program], hints: bool) -> list[Program]:
    """The programs of these names, each once; ``all`` for every one that can run.

    `UserError` for an unknown name, or for ``hint`` without a hint.
    """
    wanted = [
        name
        for given in names
        for name in (known if given == EVERYTHING else [given])
        if not (given == EVERYTHING and name == "hint" and not hints)
    ]
    unknown = sorted(set(wanted) - set(known))
    if unknown:
        raise UserError(
            f"There is no program {', '.join(unknown)}.", f"There are {', '.join(known)}."
        )
    if "hint" in wanted and not hints:
        raise UserError("The program `hint` needs a hint.", 'Give --hint "200:Try small cases."')
    return [known[name] for name in dict.fromkeys(wanted)]


def main() -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table("program", "workers", "layouts", "what it does")
    for program in catalog().values():
        fixed = program.fewest == program.most
        size = str(program.fewest) if fixed else f"{program.fewest} to {program.most}"
        table.add_row(program.name, size, "yes" if program.layouts else "no", program.about)
    Console().print(table)


if __name__ == "__main__":
    main()
