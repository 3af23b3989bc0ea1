"""The options that all benchmarks have on the command line."""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer

_Item = TypeVar("_Item")


def comma_list(text: str, item: Callable[[str], _Item], option: str) -> list[_Item]:
    """``a,b,c`` as a list. ``typer.BadParameter`` if it is empty or an item does not fit."""
    try:
        found = [item(part.strip()) for part in text.split(",") if part.strip()]
    except ValueError as error:
        raise typer.BadParameter(f"{option}: {error}") from None
    if not found:
        raise typer.BadParameter(f"{option} is empty")
    return found


def shown(option: Any, default: str) -> Any:
    """An option whose default is a benchmark's own, with that default in its help."""
    info = copy(option.__metadata__[0])
    info.show_default = default
    return Annotated[option.__origin__, info]


_RUN, _WHAT, _MODEL = "The run", "What is compared", "How the model is asked"

Url = Annotated[
    list[str] | None,
    typer.Option(
        "--url",
        help="A server's address; repeat it to spread the problems over several servers.",
        show_default="http://127.0.0.1:30000",
        rich_help_panel=_RUN,
    ),
]
Data = Annotated[
    str | None,
    typer.Option(
        "--data",
        metavar="FILE",
        help="Problems from a local JSON Lines file instead of the Hugging Face hub.",
        rich_help_panel=_RUN,
    ),
]
Out = Annotated[
    Path | None,
    typer.Option(
        "--out",
        metavar="FOLDER",
        help="Folder of the run. The same command with the same folder goes on where it stopped.",
        rich_help_panel=_RUN,
    ),
]
Limit = Annotated[
    int | None,
    typer.Option(
        "--limit",
        min=1,
        help="Only the first N problems; raise it later to go on.",
        rich_help_panel=_RUN,
    ),
]
Concurrency = Annotated[
    int,
    typer.Option(min=1, help="Problems at a time on each server.", rich_help_panel=_RUN),
]
Patience = Annotated[
    float,
    typer.Option(
        min=0, help="Seconds without any server before the run gives up.", rich_help_panel=_RUN
    ),
]
DryRun = Annotated[
    bool,
    typer.Option("--dry-run", help="Say what would be run, and stop.", rich_help_panel=_RUN),
]
Programs = Annotated[
    str,
    typer.Option(
        "--programs",
        "-p",
        help="Programs to compare, with commas, or `all`; `python -m bench.catalog` lists them.",
        rich_help_panel=_WHAT,
    ),
]
Layouts = Annotated[
    str,
    typer.Option(
        help="What team workers see of each other, with commas: combined, interleaved, "
        "contiguous, independent.",
        rich_help_panel=_WHAT,
    ),
]
Workers = Annotated[
    str,
    typer.Option(
        help="Team sizes, with commas, 2 to 16; programs with one writer ignore it.",
        rich_help_panel=_WHAT,
    ),
]
Budgets = Annotated[
    str | None,
    typer.Option(
        help="Budgets in sequential forward passes, with commas.",
        rich_help_panel=_WHAT,
    ),
]
Seeds = Annotated[
    int,
    typer.Option(
        min=1,
        help="How often each problem is run, each time with a seed of its own.",
        rich_help_panel=_WHAT,
    ),
]
Seed = Annotated[
    int, typer.Option(help="The master seed, from which all others follow.", rich_help_panel=_WHAT)
]
Hint = Annotated[
    list[str] | None,
    typer.Option(
        help="PASSES:TEXT, said to every team of the program `hint` (repeatable).",
        rich_help_panel=_WHAT,
    ),
]
FormattingName = Annotated[
    str | None,
    typer.Option(
        "--formatting",
        metavar="NAME",
        help="Prompts: maths-en, maths-zh, code-en, ..., or your own TOML file.",
        rich_help_panel=_MODEL,
    ),
]
Temperature = Annotated[
    float, typer.Option(min=0, help="Sampling temperature; 0 is greedy.", rich_help_panel=_MODEL)
]
TopP = Annotated[
    float,
    typer.Option(
        min=0.01,
        max=1,
        help="Draw among the likeliest tokens that have this much probability together.",
        rich_help_panel=_MODEL,
    ),
]
CheckEvery = Annotated[
    int,
    typer.Option(
        min=0,
        help="Tokens between redundancy checks, summed over a team; 0 for no checks.",
        rich_help_panel=_MODEL,
    ),
]
StepTokens = Annotated[
    int | None,
    typer.Option(min=1, help="Most tokens in one step of a worker.", rich_help_panel=_MODEL),
]
FinisherTokens = Annotated[
    int | None,
    typer.Option(
        min=1,
        help="Most tokens of a final answer.",
        rich_help_panel=_MODEL,
    ),
]
EarlyStop = Annotated[
    bool | None,
    typer.Option(
        "--early-stop/--no-early-stop",
        help="Whether an answer in a finished step ends a run.",
        rich_help_panel=_MODEL,
    ),
]
