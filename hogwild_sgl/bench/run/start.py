"""From a plan to a finished run: looks at the servers, runs what is missing, reports."""

from __future__ import annotations

import os
import shlex
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from rich.markup import escape

from hogwild_sgl.bench.catalog import catalog, choose
from hogwild_sgl.bench.run.grid import Program, Unit, settings_of, units_of
from hogwild_sgl.bench.run.progress import Board
from hogwild_sgl.bench.run.runner import Conditions, Outcome, Runner
from hogwild_sgl.bench.run.servers import Servers, api_key
from hogwild_sgl.bench.run.store import Store, read_results
from hogwild_sgl.bench.suite.task import Task
from hogwild_sgl.cli.console import STOPPED, err, hush_tracebacks, show_error
from hogwild_sgl.client.client import Client
from hogwild_sgl.errors import UserError
from hogwild_sgl.prompts import find_formatting
from hogwild_sgl.prompts.formatting import Formatting

_TIME = "%Y-%m-%d %H:%M:%S %z"
# What must not differ between servers of one run, or between its starts.
_SAME = ("model", "sglang", "hogwild_sgl")


@dataclass(frozen=True)
class Plan:
    """What was asked for on the command line, checked but not yet begun.

    given: options of all programs (fields of `Settings`), with the
    formatting by name.
    """

    task: Task
    urls: tuple[str, ...]
    data: str | None
    out: Path
    limit: int | None
    concurrency: int
    patience: float
    programs: Sequence[str]
    layouts: Sequence[str]
    workers: Sequence[int]
    budgets: tuple[int, ...]
    seeds: int
    seed: int
    given: Mapping[str, Any]

    def formatting(self) -> Formatting:
        """The prompts. `UserError` if there are none of that name."""
        try:
            return find_formatting(self.given["formatting"])
        except (ValueError, OSError) as error:
            raise UserError(str(error), "See --formatting in --help.") from error

    def grid(self) -> tuple[list[Program], list[Unit]]:
        """The programs, and all their runs on all problems."""
        chosen = choose(self.programs, catalog(), bool(self.given["hints"]))
        settings = settings_of(chosen, self.layouts, self.workers)
        examples = self.task.load(self.data, self.limit)
        return chosen, units_of(chosen, settings, examples, self.seeds, self.budgets)

    def settings(self, formatting: Formatting, server: Mapping[str, Any]) -> dict[str, Any]:
        """What makes results comparable. Programs, problems and seeds may be added later."""
        return {
            "task": self.task.name,
            **self.task.settings,
            "budgets": list(self.budgets),
            "master_seed": self.seed,
            "server": {name: server.get(name) for name in _SAME},
            **self.given,
            "formatting": formatting.to_dict(),
        }

    def notes(self) -> dict[str, Any]:
        """What is worth knowing besides: kept from the first start of a run."""
        return {
            "title": self.task.title,
            "data": self.data or str(self.task.hub or "built in"),
            "began": time.strftime(_TIME),
            "concurrency": self.concurrency,
            "servers": list(self.urls),
            "published": {name: dict(curve) for name, curve in self.task.published.items()},
            "source": self.task.source,
            **self.task.notes,
        }


def command_line() -> str:
    """The command that started this process, as a person would type it."""
    module = getattr(sys.modules.get("__main__"), "__spec__", None)
    begin = ["python", "-m", module.name] if module else [Path(sys.argv[0]).name]
    return shlex.join([*begin, *sys.argv[1:]])


def look_at(urls: Sequence[str]) -> dict[str, Any]:
    """What the servers say of themselves. `UserError` if one is not there, has no patch, or
    differs from the others in model or versions."""
    found: dict[str, Any] = {}
    for url in urls:
        with Client(url, api_key=api_key(), timeout=30.0) as client:
            info = client.info()
        differs = [name for name in _SAME if found and info.get(name) != found.get(name)]
        if differs:
            raise UserError(
                f"The servers are not alike: {url} has {differs[0]} {info.get(differs[0])!r}, "
                f"{urls[0]} has {found.get(differs[0])!r}.",
                "Give servers with the same model and versions.",
            )
        found = found or info
    return found


def show(plan: Plan) -> int:
    """Prints what would be run. Needs no server."""
    plan.formatting()
    _, units = plan.grid()
    settings = list(dict.fromkeys((unit.setting.label, unit.budgets) for unit in units))
    problems = len({unit.example.id for unit in units})
    err.print(f"{plan.task.title}: {problems} problems, {plan.seeds} seed(s), {len(units)} runs")
    for label, budgets in settings:
        err.print(f"  {escape(label)} at {', '.join(map(str, budgets))} passes", highlight=False)
    return 0


def start(plan: Plan) -> int:
    """Runs what has no result yet and writes the report; the exit status.

    0 if every run has a result, 1 if some failed, 130 after Ctrl-C. `UserError` for what
    keeps the run from beginning or going on.
    """
    hush_tracebacks()
    formatting = plan.formatting()
    programs, units = plan.grid()
    settings = plan.settings(formatting, look_at(plan.urls))
    conditions = Conditions(plan.seed, {**plan.given, "formatting": formatting})
    with Store(plan.out, settings, plan.notes()) as store:
        now = time.strftime(_TIME)
        labels = list(dict.fromkeys(unit.setting.label for unit in units))
        begun = {"at": now, "command": command_line(), "runs": len(units), "settings": labels}
        store.add_start(begun)
        wanted = {unit.key for unit in units}
        with Board(plan.task.title, len(units)) as board:
            for record in read_results(plan.out):
                if record["unit"] in wanted:
                    board.already(record)
            board.begin()
            servers = Servers(plan.urls, plan.concurrency, plan.patience, tell=board.note)
            runner = Runner(
                plan.task, programs, conditions, store, servers, board.finished, board.failed
            )
            ended: BaseException | None = None
            try:
                outcome = runner.run(units)
            except (KeyboardInterrupt, UserError) as error:
                ended = error
    _report(plan.out)
    if ended is not None:
        _leave(ended)
    _sum_up(outcome)
    return 0 if outcome.complete else 1


def _leave(ended: BaseException) -> NoReturn:
    """Ends the process without waiting for the programs that are still running: their
    threads wait for a server, and the server drops their steps when the connections break."""
    if isinstance(ended, UserError):
        show_error(ended)
    else:
        err.print("Stopped. The same command goes on from here.")
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(1 if isinstance(ended, UserError) else STOPPED)


def _report(folder: Path) -> None:
    if any(True for _ in read_results(folder)):
        # Here, since plotting takes long to load and a killed run never comes to it.
        from hogwild_sgl.bench.report.__main__ import write_report

        page = write_report(folder)
        err.print(f"Report: {page} and {page.with_suffix('.md')}", highlight=False, soft_wrap=True)


def _sum_up(outcome: Outcome) -> None:
    err.print(
        f"{outcome.total} runs: {outcome.before} done before, {outcome.done} now, "
        f"{outcome.failed} failed."
    )
    if not outcome.complete:
        err.print("Run the same command again to try the failed ones once more.")
