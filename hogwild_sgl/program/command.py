"""Runs a program from the command line and shows what it does."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from hogwild_sgl.cli.console import hush_tracebacks, progress, saying_stopped, show_error
from hogwild_sgl.errors import UserError
from hogwild_sgl.program.options import parameters, settings_from
from hogwild_sgl.program.program import Program
from hogwild_sgl.prompts.formatting import THINKING
from hogwild_sgl.transcript import Result, append_result

URL = "http://127.0.0.1:30000"


def main(program: Program) -> None:
    """The command line of one program."""
    app = typer.Typer(add_completion=False, rich_markup_mode=None)
    app.command(help=f"{program.about}\n\n{_server(program)}")(command(program))
    app()


def command(program: Program) -> Any:
    """A function with the program's options as its parameters, for typer."""

    def run(
        problem: Annotated[str, typer.Argument(help="The problem, or @FILE to read it from.")],
        url: Annotated[str, typer.Option(envvar="HOGWILD_URL", help="The server.")] = URL,
        api_key: Annotated[
            str | None, typer.Option(envvar="HOGWILD_API_KEY", help="If the server asks for one.")
        ] = None,
        save: Annotated[
            Path | None, typer.Option(help="Append the transcript to this JSON Lines file.")
        ] = None,
        quiet: Annotated[bool, typer.Option(help="Print the answer only.")] = False,
        thinking: Annotated[
            str | None,
            typer.Option(help=f"Where the model's thinking tag goes: {', '.join(THINKING)}."),
        ] = None,
        examples: Annotated[
            bool, typer.Option(help="Show the workers an example of working together.")
        ] = False,
        **options: Any,
    ) -> None:
        changes = {"thinking": thinking} if thinking is not None else {}
        if examples:
            changes["examples"] = _examples(options["formatting"])
        settings = settings_from(options, **changes)
        console = Console()
        try:
            with saying_stopped():
                result = _solve(program, _text(problem), settings, url, api_key, quiet, console)
        except UserError as error:
            show_error(error)
            raise typer.Exit(1) from error
        except ValueError as error:
            show_error(UserError(f"{program.name}: {error}"))
            raise typer.Exit(1) from error
        if save is not None:
            append_result(save, result)
        if quiet:
            typer.echo("" if result.answer is None else result.answer)
        else:
            summary(result, console)

    own = list(inspect.signature(run, eval_str=True).parameters.values())[:-1]
    signature = inspect.Signature([*own, *parameters(program)])
    run.__signature__ = signature  # type: ignore[attr-defined]
    run.__annotations__ = {p.name: p.annotation for p in signature.parameters.values()}
    return run


def summary(result: Result, console: Console) -> None:
    """Answer, tokens of each worker, forward passes, time."""
    table = Table(show_header=False, box=None, pad_edge=False)
    answer = "none was found in the text" if result.answer is None else result.answer
    table.add_row("answer", answer, style="bold")
    pairs = zip(result.workers, result.tokens, strict=True)
    table.add_row("tokens", ", ".join(f"{name} {tokens}" for name, tokens in pairs))
    table.add_row(
        "forward passes",
        f"{result.passes} (budget {result.budget}; ended by {_ended(result.stopped)}), "
        f"finisher {result.finisher_passes}",
    )
    table.add_row("KV tokens", str(result.kv_tokens))
    for check in result.checks:
        table.add_row("check", f"{check.name} at {check.tokens} tokens: {check.answer}")
    for probe in result.probes:
        table.add_row(f"at {probe.budget} passes", str(probe.answer))
    rate = result.total_tokens / result.seconds if result.seconds else 0.0
    table.add_row("time", f"{result.seconds:.1f} s ({rate:.1f} tokens/s)")
    console.print()
    console.print(table)


def _ended(reason: str) -> str:
    words = {"stop": "an answer", "workers_ended": "the workers", "budget": "the budget"}
    return words.get(reason, reason)


def _solve(
    program: Program,
    problem: str,
    settings: Any,
    url: str,
    api_key: str | None,
    quiet: bool,
    console: Console,
) -> Result:
    from hogwild_sgl.lang.endpoint import Endpoint
    from hogwild_sgl.program.display import Columns

    hush_tracebacks()
    with Endpoint(url, api_key) as backend:
        if quiet:
            return program.solve(problem, settings, backend=backend)
        if program.team:
            with Columns(settings.worker_names, console) as columns:
                return program.solve(problem, settings, backend=backend, watch=columns)
        with progress(program.name) as show:
            show("writing")
            result = program.solve(problem, settings, backend=backend)
    for step in result.steps:
        console.print(f"--- {step.name or 'finisher'}", style="dim", markup=False)
        console.print(step.full_text.strip(), markup=False, highlight=False)
    return result


def _text(problem: str) -> str:
    if not problem.startswith("@"):
        return problem
    try:
        return Path(problem[1:]).read_text(encoding="utf-8")
    except OSError as error:
        raise typer.BadParameter(f"cannot read the problem: {error}") from error


def _examples(name: str) -> str:
    from hogwild_sgl import prompts

    task, _, language = name.partition("-")
    if Path(name).suffix == ".toml":
        raise typer.BadParameter("a formatting from a file has its own `examples`")
    return prompts.formatting(task, language, examples=True).examples


def _server(program: Program) -> str:
    if program.team:
        return "Talks to a server that was started with `hogwild serve MODEL`."
    return "Talks to any SGLang server."
