"""The command line of a benchmark: from options to a run, a progress bar and a report."""

# No `from __future__ import annotations` here: the options of a family of benchmarks are
# made when `_app` is called, which typer can only see as real objects.
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer

from hogwild_sgl.bench.run.grid import check_budgets
from hogwild_sgl.bench.run.servers import API_KEY
from hogwild_sgl.bench.suite import options as opt
from hogwild_sgl.bench.suite.task import Task
from hogwild_sgl.errors import UserError

DEFAULT_URL = "http://127.0.0.1:30000"


def benchmark(task: Task) -> typer.Typer:
    """The command line of a benchmark that has one form."""
    return _app({task.name: task}, None, task.name, task.title, task.name)


def benchmark_family(
    tasks: Mapping[str, Task], option: str, default: str, title: str, module: str
) -> typer.Typer:
    """The command line of a benchmark that has several forms, chosen by ``--option``.

    module: its name in `bench`."""
    return _app(tasks, option, default, title, module)


def _app(
    tasks: Mapping[str, Task], option: str | None, default: str, title: str, module: str
) -> typer.Typer:
    app = typer.Typer(add_completion=False, rich_markup_mode="markdown")
    usual = tasks[default]
    out_option = opt.shown(opt.Out, f"runs/{usual.name}")
    budgets_option = opt.shown(opt.Budgets, ",".join(map(str, usual.budgets)))
    formatting_option = opt.shown(opt.FormattingName, f"{usual.prompts}-en")
    finisher_option = opt.shown(opt.FinisherTokens, str(usual.finisher_tokens))
    stop_option = opt.shown(opt.EarlyStop, "early-stop" if usual.early_stop else "no-early-stop")
    variant = Annotated[
        str,
        typer.Option(
            f"--{option or 'variant'}",
            help=f"Which one: {', '.join(tasks)}.",
            hidden=option is None,
            rich_help_panel="What is compared",
        ),
    ]

    def main(
        which: variant = default,  # type: ignore[valid-type]
        url: opt.Url = None,
        data: opt.Data = None,
        out: out_option = None,  # type: ignore[valid-type]
        limit: opt.Limit = None,
        concurrency: opt.Concurrency = 4,
        patience: opt.Patience = 300.0,
        dry_run: opt.DryRun = False,
        programs: opt.Programs = "single,team",
        layouts: opt.Layouts = "combined",
        workers: opt.Workers = "2",
        budgets: budgets_option = None,  # type: ignore[valid-type]
        seeds: opt.Seeds = 1,
        seed: opt.Seed = 0,
        hint: opt.Hint = None,
        formatting: formatting_option = None,  # type: ignore[valid-type]
        temperature: opt.Temperature = 0.6,
        top_p: opt.TopP = 0.95,
        check_every: opt.CheckEvery = 1024,
        step_tokens: opt.StepTokens = None,
        finisher_tokens: finisher_option = None,  # type: ignore[valid-type]
        early_stop: stop_option = None,  # type: ignore[valid-type]
    ) -> None:
        # Here, so that --help is quick.
        from hogwild_sgl.bench.run.start import Plan, show, start
        from hogwild_sgl.cli.console import show_error

        if which not in tasks:
            raise typer.BadParameter(f"--{option} is one of {', '.join(tasks)}, not {which}")
        task = tasks[which]
        try:
            hints = tuple(_hint(text) for text in hint or ())
            given = {
                "formatting": formatting or f"{task.prompts}-en",
                "temperature": temperature,
                "top_p": top_p,
                "check_every": check_every,
                "step_tokens": step_tokens,
                "finisher_tokens": finisher_tokens or task.finisher_tokens,
                "early_stop": task.early_stop if early_stop is None else early_stop,
                "hints": hints,
            }
            plan = Plan(
                task=task,
                urls=tuple(url or [DEFAULT_URL]),
                data=data,
                out=out or Path("runs", task.name),
                limit=limit,
                concurrency=concurrency,
                patience=patience,
                programs=opt.comma_list(programs, str, "--programs"),
                layouts=opt.comma_list(layouts, str, "--layouts"),
                workers=opt.comma_list(workers, int, "--workers"),
                budgets=check_budgets(
                    opt.comma_list(budgets, int, "--budgets") if budgets else task.budgets
                ),
                seeds=seeds,
                seed=seed,
                given=given,
            )
            code = show(plan) if dry_run else start(plan)
        except UserError as error:
            show_error(error)
            raise typer.Exit(1) from None
        raise typer.Exit(code)

    main.__doc__ = (
        f"Run {title} with any programs, and write a report.\n\n"
        f"Problems: {usual.origin}, or your own with --data. "
        f"Columns of a row: {usual.columns}.\n\n"
        "Model: whatever the server runs; start one with `hogwild serve MODEL`. If it asks for a "
        f"key, put that into the environment variable {API_KEY}.\n\n"
        "A run can be killed at any time: the same command goes on where it stopped, and no "
        "problem is lost or done twice. Report and results are in the run's folder. "
        "See docs/benchmarks.md."
    )
    example = (
        f"Example: `python -m bench.{module} --url http://127.0.0.1:30000 --programs single,team "
        "--layouts combined,independent --limit 20`"
    )
    app.command(epilog=example)(main)
    return app


def _hint(text: str) -> tuple[int, str]:
    passes, colon, said = text.partition(":")
    if not colon or not passes.strip().isdigit() or not said.strip():
        raise UserError(f"A hint looks like 200:Try small cases, not {text!r}.", "")
    return int(passes), said.strip()
