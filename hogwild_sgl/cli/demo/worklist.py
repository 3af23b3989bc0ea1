"""The demo with the worklist model: a team shares out a list of sums by itself."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import TYPE_CHECKING

from rich.table import Table

from hogwild_sgl.cli.console import err, out
from hogwild_sgl.errors import UserError
from hogwild_sgl.prompts.templates import join_names
from hogwild_sgl.worklist.format import FORMATTING
from hogwild_sgl.worklist.score import Score, score
from hogwild_sgl.worklist.task import Split, Task, draw_task, task_of

if TYPE_CHECKING:
    from hogwild_sgl.cli.demo.command import Request

ITEMS = 12
PASSES = 60  # for each item, at most


def play(request: Request, url: str) -> None:
    """The team works, watched; then one worker does the same list alone, to compare."""
    from hogwild_sgl.program.display import Columns
    from hogwild_sgl.program.settings import Settings
    from hogwild_sgl.programs.worklist import PROGRAM

    task = _task(request)
    settings = Settings(
        formatting=FORMATTING,
        budget=request.budget or PASSES * len(task.items),
        seed=request.seed,
        temperature=0.7,
        top_p=1.0,
        check_every=0,
        workers=request.workers,
    )
    names = join_names(settings.worker_names, "en")
    out.print(f"[bold]{task.prompt}[/]", highlight=False)
    out.print(
        f"{names} write at the same time and read each other's unfinished lines. Each takes a "
        "sum that nobody has done or is doing.",
        style="dim",
    )
    with Columns(settings.worker_names, out) as columns:
        together = PROGRAM.solve(task.prompt, settings, url=url, watch=columns)
    with err.status(f"The same list, {settings.worker_names[0]} alone"):
        alone = PROGRAM.solve(task.prompt, replace(settings, workers=1), url=url)
    table = Table(box=None, pad_edge=False)
    for column in ("", "forward passes", "sums right", "done twice", "last line"):
        table.add_column(column)
    for who, result in ((names, together), (settings.worker_names[0] + " alone", alone)):
        table.add_row(who, *_row(score(task, result)))
    out.print()
    out.print(table)


def _task(request: Request) -> Task:
    if request.problem is None:
        return draw_task(random.Random(f"demo {request.seed}"), ITEMS, Split.TEST)
    try:
        return task_of(request.problem)
    except ValueError as error:
        raise UserError(
            f"The worklist model takes a list of sums: {error}.",
            "Give such a list, or a question in words with --smollm2.",
        ) from error


def _row(found: Score) -> tuple[str, ...]:
    last = "not reached" if found.passes is None else "right" if found.final_right else "wrong"
    passes = "budget used" if found.passes is None else str(found.passes)
    return passes, f"{found.right} of {found.items}", str(found.repeated), last
