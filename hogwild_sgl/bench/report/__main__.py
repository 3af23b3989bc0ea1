"""The report of a run: ``report.md`` and ``report.html`` with plots, in its folder.

python -m bench.report runs/limo
"""

from __future__ import annotations

import html
import json
from collections.abc import Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Annotated, Any

import typer
from markdown_it import MarkdownIt
from rich.console import Console

from hogwild_sgl.bench.judge.__main__ import read_scores
from hogwild_sgl.bench.report import plots, tables
from hogwild_sgl.bench.report.summary import Summary, summarise
from hogwild_sgl.bench.run.store import FAILURES, STARTS, read_lines, read_results, read_settings
from hogwild_sgl.errors import UserError

_SINGLES = 6

_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; max-width: 68rem; margin: 2rem auto; padding: 0 1rem;
       color: #222; background: #fff }
table { border-collapse: collapse; margin: 1rem 0; display: block; overflow-x: auto }
th, td { border: 1px solid #ccc; padding: .25rem .6rem; font-variant-numeric: tabular-nums }
th { background: #f3f3f3 }
code, pre { background: #f6f6f6; font-size: 13px } pre { padding: .8rem; overflow-x: auto }
svg { max-width: 100%; height: auto }
"""

_DEFINITIONS = """\
- **Budget**: sequential forward passes that the workers may use. Where a program answers at \
several budgets in one run, a reader reads its answer when that many passes are used, which \
costs the run nothing and disturbs it in nothing; other programs are run once per budget.
- **Accuracy**: mean over problems of the mean over a problem's seeds, in percent, with a 95% \
interval: Wilson's where each problem has one grade of 0 or 1, else a bootstrap over problems. \
Differences are paired by problem and bootstrapped.
- **Passes to an accuracy**: on straight lines between the measured budgets; "≤" where the \
smallest budget already reached it; empty where no budget did.
- **Critical path**: forward passes that had to follow each other, the finisher's included. Wall \
time is that of one problem while others ran on the same server, so that it depends on the load; \
passes do not.
- **KV slots**: held by one run at the end of its work, each counted once.
- **References** to another worker: by name, or as "my partner" and the like.
- **Redundant text**: share of five-token runs in a worker's text that another worker had \
written at that moment, and that stand neither in the problem nor in the own earlier text.
- **Corrections**: sentences that name another worker and say that something is wrong; they \
stand if nobody disputes or takes them back later.
- **Idle text**: in sentences that say the writer waits or has nothing to do. **Own text \
repeated**: in sentences that the writer had written before.

References, corrections and idle text are found with word lists (English and Chinese): good for \
comparing programs with each other, not for the single case."""


def markdown(folder: Path, targets: Sequence[float] = tables.TARGETS) -> str:
    """The report's text; writes the plots that it shows into the folder.

    `UserError` if the folder holds no run or no results.
    """
    settings, notes = read_settings(folder)
    if next(read_results(folder), None) is None:
        raise UserError(f"{folder} has no results yet.", "Run the benchmark first.")
    starts = list(read_lines(folder / STARTS))
    order = dict.fromkeys(label for start in starts for label in start["settings"])
    summaries = summarise(read_results(folder), read_scores(folder), list(order))
    title = _title(folder)
    published = {
        label: {int(budget): value for budget, value in curve.items()}
        for label, curve in notes.get("published", {}).items()
    }
    # Each command once, in the order in which they extended the run.
    commands = "\n".join(dict.fromkeys(start["command"] for start in starts))
    parts = [f"# {tables.escape(title, 200)}", _overview(settings, notes, folder)]
    parts += _accuracy(folder, title, summaries, published, notes, targets)
    parts += ["## Cost", "Of the runs at the largest budget.", tables.costs(summaries)]
    parts += _collaboration(folder, title, summaries)
    parts += [
        "## Some single results",
        "To be checked by hand against `results.jsonl`, which holds the whole transcripts.",
        tables.singles(list(islice(read_results(folder), _SINGLES))),
        "## To repeat it",
        f"```sh\n{commands}\n```" if commands else "",
        "```json\n" + json.dumps(settings, ensure_ascii=False, indent=2) + "\n```",
        "```json\n" + json.dumps(notes, ensure_ascii=False, indent=2) + "\n```",
        "## What the numbers mean",
        _DEFINITIONS,
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _title(folder: Path) -> str:
    settings, notes = read_settings(folder)
    return str(notes.get("title") or settings.get("task") or folder.name)


def _overview(settings: Mapping[str, Any], notes: Mapping[str, Any], folder: Path) -> str:
    runs = {r["unit"]: (r["example"], r["seed"]) for r in read_results(folder)}
    problems = len({example for example, _ in runs.values()})
    seeds = len({seed for _, seed in runs.values()})
    server = settings.get("server") or {}
    lines = [
        f"{len(runs)} runs: {problems} problems, {seeds} seed(s) each",
        f"model: {tables.escape(server.get('model', 'unknown'), 120)}",
        f"data: {tables.escape(notes.get('data', 'unknown'), 120)}",
        f"begun: {tables.escape(notes.get('began', 'unknown'))}",
    ]
    failed = {line["unit"] for line in read_lines(folder / FAILURES)} - set(runs)
    planned = max((start["runs"] for start in read_lines(folder / STARTS)), default=0)
    if planned > len(runs):
        lines.append(f"**not finished**: {len(runs)} of {planned} runs are done")
    if failed:
        lines.append(f"**{len(failed)} runs failed** (see `{FAILURES}`); they are not in the means")
    return "\n".join(f"- {line}" for line in lines)


def _accuracy(
    folder: Path,
    title: str,
    summaries: Sequence[Summary],
    published: Mapping[str, Mapping[int, float]],
    notes: Mapping[str, Any],
    targets: Sequence[float],
) -> list[str]:
    plot = plots.accuracy_plot(folder, title, summaries, published)
    if plot is None:
        return ["## Accuracy", "These problems have no right answers to compare with."]
    parts = [
        "## Accuracy against budget",
        f"![accuracy against budget]({plot}.png)",
        "In percent, with 95% intervals; the columns are budgets in forward passes.",
        tables.accuracy(summaries),
    ]
    if published:
        budgets = [budget for summary in summaries for budget in summary.curve]
        drawn = plots.applicable(published, budgets)
        place = "drawn dashed" if drawn else "not drawn: it has no point among these budgets"
        rows = [
            [tables.escape(label), *[f"{value:.1f}" for _, value in sorted(curve.items())]]
            for label, curve in published.items()
        ]
        head = ["published", *map(str, sorted(next(iter(published.values()))))]
        parts += [f"For comparison ({place}): {notes.get('source', '')}.", tables.table(head, rows)]
    right = tables.all_right(summaries)
    if right:
        parts += ["### Tasks with several questions", right]
    gain = tables.differences(summaries)
    if gain:
        parts += ["### Difference to the single writer, in points", gain]
    reached = tables.steps(summaries, published, targets)
    parts.append("### Passes to an accuracy")
    parts.append(reached or f"No curve reaches {100 * min(targets):g}%.")
    for field in sorted({field for summary in summaries for field in summary.groups}):
        parts += [f"### By {tables.escape(field)}", tables.groups(summaries, field)]
    return parts


def _collaboration(folder: Path, title: str, summaries: Sequence[Summary]) -> list[str]:
    measured = tables.collaboration(summaries)
    parts: list[str] = []
    if measured:
        plot = plots.collaboration_plot(folder, title, summaries)
        parts += ["## Collaboration", f"![collaboration]({plot}.png)", measured]
    judged = tables.judged(summaries)
    if judged:
        parts += ["### Judged from 1 to 6", "Mean (number of runs).", judged]
    return parts


def to_html(text: str, folder: Path, title: str) -> str:
    """The Markdown as one page; plots are put into it as SVG, so that it needs no other file."""
    # Raw HTML stays text: answers of a model end up in this page.
    body = MarkdownIt("commonmark", {"html": False}).enable("table").render(text)
    for name in ("accuracy", "collaboration"):
        path = folder / f"{name}.svg"
        if not path.exists():
            continue
        picture = path.read_text(encoding="utf-8")
        picture = picture[picture.index("<svg") :]
        start = body.find(f'<img src="{name}.png"')
        if start >= 0:
            end = body.index(">", start) + 1
            body = body[:start] + picture + body[end:]
    return (
        f'<!doctype html>\n<html lang="en">\n<meta charset="utf-8">\n'
        f"<title>{html.escape(title)}</title>\n<style>{_STYLE}</style>\n{body}</html>\n"
    )


def write_report(folder: str | Path, targets: Sequence[float] = tables.TARGETS) -> Path:
    """Writes ``report.md`` and ``report.html``; returns the latter's path."""
    folder = Path(folder)
    text = markdown(folder, targets)
    (folder / "report.md").write_text(text, encoding="utf-8", errors="replace")
    page = folder / "report.html"
    page.write_text(to_html(text, folder, _title(folder)), encoding="utf-8", errors="replace")
    return page


app = typer.Typer(add_completion=False)


@app.command()
def main(
    run: Annotated[Path, typer.Argument(help="The folder of a finished or running benchmark.")],
    target: Annotated[
        list[float] | None,
        typer.Option(
            min=0, max=1, help="An accuracy to give passes for, from 0 to 1 (repeatable)."
        ),
    ] = None,
) -> None:
    """Write report.md and report.html, with plots, into the folder of a run."""
    try:
        page = write_report(run, sorted(set(target)) if target else tables.TARGETS)
    except UserError as error:
        Console(stderr=True).print(f"[red]{error}[/red]")
        raise typer.Exit(1) from None
    print(page)


if __name__ == "__main__":
    app()
