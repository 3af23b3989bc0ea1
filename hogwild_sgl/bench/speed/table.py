"""Results of a run: cells, their medians, JSON, Markdown and the plot."""

from __future__ import annotations

import json
import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path


@dataclass(frozen=True)
class Cell:
    """One measurement. way: hogwild, independent, plain, text, linear or memory."""

    way: str
    workers: int
    cache: int
    tokens_per_second: float
    ms_per_forward: float

    def __post_init__(self) -> None:
        if self.workers < 1 or self.cache < 1 or self.tokens_per_second <= 0:
            raise ValueError(f"not a measurement: {self}")


@dataclass(frozen=True)
class Table:
    """All cells of a run; a pair of (way, workers, cache) may have several."""

    cells: Sequence[Cell]

    def median(self, way: str, workers: int, cache: int) -> Cell | None:
        found = [c for c in self.cells if (c.way, c.workers, c.cache) == (way, workers, cache)]
        if not found:
            return None
        return Cell(
            way,
            workers,
            cache,
            statistics.median(c.tokens_per_second for c in found),
            statistics.median(c.ms_per_forward for c in found),
        )

    @property
    def ways(self) -> list[str]:
        return list(dict.fromkeys(c.way for c in self.cells))

    @property
    def workers(self) -> list[int]:
        return sorted({c.workers for c in self.cells})

    @property
    def caches(self) -> list[int]:
        return sorted({c.cache for c in self.cells})

    def markdown(self, tokens: int) -> str:
        """Tokens/s (ms per forward; seconds for ``tokens`` tokens) per way, workers and cache."""
        lines = ["| way | workers | " + " | ".join(f"{c} cached" for c in self.caches) + " |"]
        lines.append("|---|---|" + "---|" * len(self.caches))
        for way in self.ways:
            for workers in self.workers:
                cells = [self.median(way, workers, cache) for cache in self.caches]
                if any(cells):
                    shown = " | ".join(_shown(cell, tokens) for cell in cells)
                    lines.append(f"| {way} | {workers} | {shown} |")
        return "\n".join(lines) + "\n"

    def write(self, folder: Path, tokens: int, settings: dict) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        body = {"settings": settings, "cells": [asdict(cell) for cell in self.cells]}
        (folder / "speed.json").write_text(json.dumps(body, indent=1))
        head = "\n".join(f"- {key}: {value}" for key, value in settings.items())
        note = f"Tokens/s summed over the workers (ms per forward; seconds for {tokens} tokens).\n"
        (folder / "speed.md").write_text(f"{head}\n\n{note}\n{self.markdown(tokens)}")
        self._plot(folder / "speed.png")

    def _plot(self, path: Path) -> None:
        import matplotlib

        matplotlib.use("Agg")
        from matplotlib import pyplot

        figure, axes = pyplot.subplots(figsize=(8, 5))
        styles = {"hogwild": "-", "independent": "--", "plain": ":", "text": "-."}
        for way, style in styles.items():
            for workers in self.workers:
                found = [self.median(way, workers, cache) for cache in self.caches]
                points = [cell for cell in found if cell]
                if points:
                    axes.plot(
                        [c.cache for c in points],
                        [c.tokens_per_second for c in points],
                        style,
                        marker="o",
                        color=f"C{self.workers.index(workers)}",
                        label=f"{way}, {workers}",
                    )
        axes.set(xscale="log", yscale="log", xlabel="tokens cached", ylabel="tokens/s, summed")
        axes.set_xticks(self.caches, [str(cache) for cache in self.caches])
        axes.legend(title="way, workers", fontsize="small")
        axes.grid(alpha=0.3)
        figure.tight_layout()
        figure.savefig(path, dpi=120)
        pyplot.close(figure)


def _shown(cell: Cell | None, tokens: int) -> str:
    if cell is None:
        return ""
    seconds = tokens / cell.tokens_per_second
    return f"{cell.tokens_per_second:.1f} ({cell.ms_per_forward:.1f}; {seconds:.0f})"
