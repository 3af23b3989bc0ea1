"""A table and plots of an experiment."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np

from hogwild_sgl.bench.report.stats import Estimate
from hogwild_sgl.bench.worklist.arms import Arm
from hogwild_sgl.bench.worklist.scores import ArmScores
from hogwild_sgl.bench.worklist.simulate import LAYOUTS

_COLUMNS = (
    "| arm | tasks | passes to the last line | of a perfect team | last line right "
    "| all items right | repeated items | references |"
)
_BLIND = "combined, blind"


def table(found: Iterable[ArmScores]) -> str:
    """A Markdown table, one row an arm; intervals are at 95%."""
    lines = [_COLUMNS, "|---|---|---|---|---|---|---|---|"]
    for arm in found:
        cells = (
            arm.arm.name,
            str(len(arm.scores)),
            _shown(arm.mean_passes, "{:.0f}"),
            f"{arm.perfect_passes:.0f}",
            _shown(arm.final_right, "{:.0%}"),
            _shown(arm.all_right, "{:.0%}"),
            _shown(arm.repeated, "{:.1%}"),
            _shown(arm.references, "{:.1f}"),
        )
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def _shown(value: Estimate, form: str) -> str:
    return f"{form} [{form}, {form}]".format(value.mean, value.low, value.high)


def plots(found: Mapping[Arm, ArmScores], temperature: float, folder: Path) -> list[Path]:
    """Passes and repeated items by number of workers, and items finished over passes."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    made = []
    figure, (left, right) = pyplot.subplots(1, 2, figsize=(11, 4.2))
    for index, (label, arms) in enumerate(_lines(found, temperature)):
        workers = [arm.workers for arm in arms]
        for axes, pick in ((left, "mean_passes"), (right, "repeated")):
            values: list[Estimate] = [getattr(found[arm], pick) for arm in arms]
            spread = [[v.mean - v.low for v in values], [v.high - v.mean for v in values]]
            style = {"color": f"C{index}", "marker": "o", "capsize": 3, "label": label}
            style["linestyle"] = ":" if label == _BLIND else "-"
            axes.errorbar(workers, [v.mean for v in values], spread, **style)
    left.set(xlabel="workers", ylabel="forward passes to the last line", ylim=(0, None))
    right.set(xlabel="workers", ylabel="share of repeated items", ylim=(0, None))
    for axes in (left, right):
        axes.set_xticks([1, 2, 3, 4])
        axes.grid(alpha=0.3)
    left.legend(fontsize="small")
    made.append(_save(figure, folder / "passes.png"))
    figure, all_axes = pyplot.subplots(1, 3, figsize=(13, 4), sharey=True)
    end = max((max(s.passes) for arm, s in found.items() if arm.items == 16), default=1)
    grid = np.arange(0, min(end, 600) + 1)
    for axes, workers in zip(all_axes, (2, 3, 4), strict=True):
        for index, (label, arms) in enumerate(_lines(found, temperature)):
            for arm in arms:
                if arm.workers == workers:
                    line = ":" if label == _BLIND else "-"
                    axes.plot(
                        grid, found[arm].finished_by(grid), line, color=f"C{index}", label=label
                    )
        if (alone := found.get(Arm(1, temperature=temperature))) is not None:
            axes.plot(grid, alone.finished_by(grid), color="0.5", label="1 worker")
        axes.set(title=f"{workers} workers", xlabel="forward passes")
        axes.grid(alpha=0.3)
    all_axes[0].set_ylabel("share of the items finished")
    all_axes[0].legend(fontsize="small")
    made.append(_save(figure, folder / "items.png"))
    return made


def _lines(found: Mapping[Arm, ArmScores], temperature: float) -> list[tuple[str, Sequence[Arm]]]:
    """(label, arms by number of workers) for each layout, without checks."""
    alone = [Arm(1, temperature=temperature)]
    lines = []
    for layout in LAYOUTS:
        arms = [*alone, *(Arm(n, layout, temperature=temperature) for n in (2, 3, 4))]
        lines.append((layout, [arm for arm in arms if arm in found]))
    blind = [Arm(n, temperature=temperature, blind=True) for n in (2, 3, 4)]
    lines.append((_BLIND, [arm for arm in [*alone, *blind] if arm in found]))
    return [(label, arms) for label, arms in lines if len(arms) > 1]


def _save(figure, path: Path) -> Path:
    from matplotlib import pyplot

    figure.tight_layout()
    figure.savefig(path, dpi=110)
    pyplot.close(figure)
    return path
