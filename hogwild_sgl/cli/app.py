"""The typer application: which commands there are, and what they take.

Each command's work is in a module of its own, imported when the command runs, so that
``hogwild --help`` is quick.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import click
import typer
from typer.core import TyperGroup

from hogwild_sgl.errors import UserError
from runtime_patch.debug.replay import TOLERANCE

DEFAULT_URL = "http://127.0.0.1:30000"


class _Group(TyperGroup):
    """Shows a UserError as a message instead of a traceback."""

    def invoke(self, ctx: click.Context) -> object:
        from hogwild_sgl.cli.console import show_error

        try:
            return super().invoke(ctx)
        except UserError as problem:
            show_error(problem)
            raise typer.Exit(1) from problem


app = typer.Typer(
    cls=_Group,
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="markdown",
    pretty_exceptions_show_locals=False,
    help="Workers of one language model that write at the same time and read each other's "
    "unfinished sentences, inside an SGLang server.",
    epilog="First time here? Run `hogwild demo`.",
)

Url = Annotated[
    str, typer.Option(metavar="URL", envvar="HOGWILD_URL", help="Where the server listens.")
]


def _show_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        typer.echo(f"hogwild-sgl {version('hogwild-sgl')}, sglang {version('sglang')}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_show_version, is_eager=True, help="Show versions and exit."
        ),
    ] = False,
) -> None:
    """Options of ``hogwild`` itself."""


@app.command(
    context_settings={"allow_extra_args": True, "ignore_unknown_options": True},
    epilog="Example: `hogwild serve Qwen/Qwen3-8B --port 30000 --tp-size 2`",
)
def serve(
    ctx: typer.Context,
    model: Annotated[
        str,
        typer.Argument(metavar="MODEL", help="Model folder, or a name on the Hugging Face hub."),
    ],
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=1, max=65535, help="Port to listen on.")] = 30000,
    start_timeout: Annotated[
        float, typer.Option(min=1, help="Seconds the server may take to start.")
    ] = 1800,
) -> None:
    """Start an SGLang server with the patch switched on.

    The same as `python -m sglang.launch_server --model-path MODEL --attention-backend hogwild
    --radix-cache-backend hogwild`.

    Every option that is not listed here goes to SGLang unchanged;
    `python -m sglang.launch_server --help` lists SGLang's.

    The server is stopped again if the patch turns out not to be active in it. Ctrl-C stops
    it.
    """
    from hogwild_sgl.cli.serve import run

    run(model, host, port, ctx.args, start_timeout)


@app.command()
def demo(
    url: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            envvar="HOGWILD_URL",
            show_default=DEFAULT_URL,
            help="Use the server there, or start one there if none runs.",
        ),
    ] = None,
    model: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER",
            show_default="the worklist model",
            help="Model for the server that the demo starts.",
        ),
    ] = None,
    smollm2: Annotated[
        bool, typer.Option("--smollm2", help="Talk with SmolLM2-135M-Instruct instead.")
    ] = False,
    problem: Annotated[
        str | None,
        typer.Option(metavar="TEXT", show_default="a built-in one", help="The problem."),
    ] = None,
    workers: Annotated[int, typer.Option(min=2, max=8, help="Number of workers.")] = 2,
    budget: Annotated[
        int | None,
        typer.Option(
            min=1,
            show_default="what fits the problem",
            help="Sequential forward passes the workers may use.",
        ),
    ] = None,
    seed: Annotated[int, typer.Option(help="Master seed of the run.")] = 5,
) -> None:
    """Watch Alice and Bob work together.

    Uses a running server, or starts one and stops it in the end; takes about a minute. The
    worklist model has 2.5 million parameters and knows one thing: to work through a list of
    sums with others. The workers share the list out by themselves, by reading each other's
    unfinished lines. --smollm2 has two chat with a model of 135 million parameters, which
    shows the mechanism and no cleverness.
    """
    from hogwild_sgl.cli.demo.command import Request, run

    run(Request(url, model, smollm2, problem, workers, budget, seed))


@app.command(
    add_help_option=False,
    context_settings={"allow_extra_args": True, "ignore_unknown_options": True},
)
def solve(
    ctx: typer.Context,
    program: Annotated[
        str, typer.Option(metavar="NAME", help="How to solve it; --help lists the programs.")
    ] = "alice_bob",
) -> None:
    """Solve PROBLEM with a program on a running server, and watch it.

    `hogwild solve --program NAME --help` shows the program's options.
    """
    from hogwild_sgl.cli.solve import run

    run(program, ctx.args)


@app.command()
def check(
    url: Url = DEFAULT_URL,
    json: Annotated[bool, typer.Option("--json", help="Print the findings as JSON.")] = False,
) -> None:
    """Is a server reachable, patched and healthy, and with what?

    Exit status 0 if all is well, 1 if not.
    """
    from hogwild_sgl.cli.check import run

    run(url, as_json=json)


@app.command()
def replay(
    cases: Annotated[
        list[Path],
        typer.Argument(
            metavar="CASE...",
            help="Folders with trace.json, logits.npz and a model, or a folder of such.",
        ),
    ],
    tolerance: Annotated[
        float, typer.Option(min=0, help="Largest absolute difference of a logit that is ok.")
    ] = TOLERANCE,
) -> None:
    """Replay reference traces through SGLang's model runner and compare the logits.

    Prints one line per case: name, largest absolute difference, ok or FAIL. Exit status
    1 if any case fails.
    """
    from hogwild_sgl.cli.replay import run

    run(cases, tolerance)
