"""The pictures of a report, as PNG and SVG files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
# Text as text keeps SVG files small and searchable; the salt makes them repeatable.
matplotlib.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "hogwild", "font.size": 10})

from matplotlib import pyplot as plt  # noqa: E402
from matplotlib.figure import Figure  # noqa: E402
from matplotlib.ticker import FixedLocator, MaxNLocator, NullLocator, PercentFormatter  # noqa: E402

from hogwild_sgl.bench.report.summary import Summary  # noqa: E402

_MARKERS = "osD^vPX*<>"
# More bands than this hide each other: bars, side by side, take their place.
_BANDS = 4
# How far apart these bars are, in doublings of the budget.
_APART = 0.015


def _save(figure: Figure, folder: Path, name: str) -> str:
    for kind in ("png", "svg"):
        metadata = {"Date": None} if kind == "svg" else None
        figure.savefig(folder / f"{name}.{kind}", dpi=150, bbox_inches="tight", metadata=metadata)
    plt.close(figure)
    return name


def applicable(
    published: Mapping[str, Mapping[int, float]], budgets: Sequence[int]
) -> dict[str, dict[int, float]]:
    """Published curves, as shares, that have a point in the range of the measured budgets."""
    low, high = min(budgets), max(budgets)
    return {
        label: {budget: value / 100 for budget, value in sorted(curve.items())}
        for label, curve in published.items()
        if any(low <= budget <= high for budget in curve)
    }


def accuracy_plot(
    folder: Path,
    title: str,
    summaries: Sequence[Summary],
    published: Mapping[str, Mapping[int, float]],
) -> str | None:
    """Accuracy against budget, one curve per setting with its interval; None without grades."""
    shown = [summary for summary in summaries if summary.curve]
    if not shown:
        return None
    budgets = sorted({budget for summary in shown for budget in summary.curve})
    figure, axes = plt.subplots(figsize=(7.5, 4.8))
    colours = plt.get_cmap("tab10" if len(shown) <= 10 else "tab20").colors
    crowded = len(shown) > _BANDS
    for at, summary in enumerate(shown):
        points = list(summary.curve.items())
        aside = 2 ** (_APART * (at - (len(shown) - 1) / 2)) if crowded else 1.0
        x = [budget * aside for budget, _ in points]
        mean = [found.mean for _, found in points]
        low, high = [e.low for _, e in points], [e.high for _, e in points]
        label = f"{summary.setting.label} (n={max(e.count for _, e in points)})"
        style = {"color": colours[at % len(colours)], "marker": _MARKERS[at % len(_MARKERS)]}
        if crowded or len(x) == 1:
            # Rounding may put a mean just outside its interval.
            below = [max(0.0, m - e) for m, e in zip(mean, low, strict=True)]
            above = [max(0.0, e - m) for m, e in zip(mean, high, strict=True)]
            spread = {"yerr": [below, above], "capsize": 2, "elinewidth": 0.8}
            axes.errorbar(x, mean, label=label, linewidth=1.4, markersize=4, **spread, **style)
        else:
            axes.plot(x, mean, label=label, linewidth=1.8, **style)
            axes.fill_between(x, low, high, alpha=0.15, color=style["color"], linewidth=0)
    drawn = applicable(published, budgets)
    for at, (label, curve) in enumerate(drawn.items()):
        style = {"linestyle": (0, (4, 2, *(1, 2) * at)), "color": "0.45", "linewidth": 1}
        axes.plot(list(curve), list(curve.values()), label=f"published: {label}", **style)
    ticks = sorted({*budgets, *(b for curve in drawn.values() for b in curve)})
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_locator(FixedLocator(ticks))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_xticklabels([str(tick) for tick in ticks])
    tops = [found.high for summary in shown for found in summary.curve.values()]
    tops += [value for curve in drawn.values() for value in curve.values()]
    # Small accuracies would all lie on the floor of an axis up to 100%.
    top = min(1.02, max(0.05, 1.1 * max(tops)))
    axes.set_ylim(-0.02 * top, top)
    axes.yaxis.set_major_formatter(PercentFormatter(1.0))
    axes.set_xlabel("budget: sequential forward passes of the workers")
    axes.set_ylabel("accuracy (mean, 95% interval)")
    axes.set_title(title)
    axes.grid(alpha=0.3)
    axes.legend(fontsize=8, loc="center left", bbox_to_anchor=(1.01, 0.5), frameon=False)
    return _save(figure, folder, "accuracy")


_BARS = (
    ("references_per_step", "references to others, per step", False),
    ("redundant_share", "redundant text", True),
    ("idle_share", "idle text", True),
    ("repeated_share", "own text repeated", True),
)


def collaboration_plot(folder: Path, title: str, summaries: Sequence[Summary]) -> str | None:
    """The collaboration measures side by side; None where nobody worked in a team."""
    shown = [summary for summary in summaries if summary.measures and summary.measures.steps]
    if not shown:
        return None
    figure, grid = plt.subplots(
        1, len(_BARS), figsize=(3.1 * len(_BARS), 0.45 * len(shown) + 1.4), sharey=True
    )
    names = [summary.setting.label for summary in shown]
    for axes, (field, label, share) in zip(grid, _BARS, strict=True):
        values = [getattr(summary.measures, field) for summary in shown]
        axes.barh(names, values, color="tab:blue", alpha=0.8)
        axes.set_title(label, fontsize=9)
        axes.set_xlim(0, max(values) * 1.15 or 1)
        if share:
            axes.xaxis.set_major_formatter(PercentFormatter(1.0))
        axes.xaxis.set_major_locator(MaxNLocator(4))
        axes.grid(alpha=0.3, axis="x")
    grid[0].invert_yaxis()
    figure.suptitle(title, fontsize=10)
    figure.tight_layout()
    return _save(figure, folder, "collaboration")
