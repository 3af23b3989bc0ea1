"""The figures the project wants to reach, one line each."""

from __future__ import annotations

import statistics
from dataclasses import dataclass

from hogwild_sgl.bench.speed.table import Table


@dataclass(frozen=True)
class Figure:
    """at_least: the target; at_most turns it round."""

    name: str
    value: float
    target: float
    at_most: bool = False

    @property
    def ok(self) -> bool:
        return self.value <= self.target if self.at_most else self.value >= self.target

    def __str__(self) -> str:
        mark = "ok" if self.ok else "SHORT"
        sign = "<=" if self.at_most else ">="
        return f"{self.name} {self.value:.2f} {sign}{self.target:g} {mark}"


def attention_figures(rounds: int) -> list[Figure]:
    """One layer, 4 rows, 9/3 heads of 64, 4096 bfloat16 keys in random slots."""
    import torch

    from hogwild_sgl.bench.attention_cpu import Case, measure, team

    case = Case("team of 4", team(4096, 4, 1), 8192)
    seconds = measure(case, rounds, torch.bfloat16)
    times = {way: statistics.median(some) for way, some in seconds.items()}
    gather = times["per request"] / times["cpp"]
    return [
        Figure("C++ attention over per-row gather and SDPA", gather, 25),
        Figure("C++ attention over the aten fallback", times["aten"] / times["cpp"], 2.5),
    ]


def table_figures(table: Table) -> list[Figure]:
    """The figures that compare cells of one run; those whose cells are missing are left out."""

    def rate(way: str, workers: int, cache: int) -> float:
        return table.median(way, workers, cache).tokens_per_second

    figures = []
    for cache in (1024,):
        hogwild = table.median("hogwild", 4, cache)
        linear = table.median("linear", 4, cache)
        figures.append(
            Figure(
                "forward of 4 workers at 1k over its linear layers alone",
                hogwild.ms_per_forward / linear.ms_per_forward,
                1.0,
                at_most=True,
            )
        )
    for cache, target in ((1024, 3.0), (8192, 3.2)):
        ratio = rate("hogwild", 4, cache) / rate("hogwild", 1, cache)
        figures.append(Figure(f"4 workers over 1 at {cache}", ratio, target))
    for cache, target in ((1024, 6), (4096, 10), (8192, 15)):
        ratio = rate("hogwild", 4, cache) / rate("independent", 4, cache)
        figures.append(
            Figure(f"4 workers over a torch_native batch of 4 at {cache}", ratio, target)
        )
    for cache in (1024, 4096, 8192):
        for batch in (1, 4):
            ratio = rate("plain", batch, cache) / rate("independent", batch, cache)
            name = f"{batch} plain requests, hogwild backend over torch_native, at {cache}"
            figures.append(Figure(name, ratio, 1.0))
    return figures
