"""The experiment: does it help a team to read each other's unfinished steps?

    python -m bench.worklist.run                  everything, on the model that is shipped
    python -m bench.worklist.run --reach          only the figures with targets
    python -m bench.worklist.run --model FOLDER   a model of bench.worklist.train's

Two servers run at once, one of them with a bug planted that hides live steps. A run that
was stopped goes on where it was when it is started again with the same --out.
"""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from hogwild_sgl.bench.worklist.arms import Arm, every_arm, reach_arms
from hogwild_sgl.bench.worklist.figures import figures
from hogwild_sgl.bench.worklist.report import plots, table
from hogwild_sgl.bench.worklist.scores import ArmScores, Transcripts
from hogwild_sgl.errors import ServerGone
from hogwild_sgl.lang.endpoint import Endpoint
from hogwild_sgl.launch.server_process import ServerProcess
from hogwild_sgl.programs.worklist import PROGRAM
from hogwild_sgl.transcript import Result
from hogwild_sgl.worklist import is_worklist_model, model_dir
from hogwild_sgl.worklist.task import Split, Task, draw_task
from runtime_patch.debug.fault_injection import BLIND, ENV

TASKS, REACH_TASKS = 100, 40
MAX_FAILED = 5  # tasks, until the rest is given up
SERVER = ["--max-total-tokens", "60000", "--skip-server-warmup"]

console = Console(stderr=True)


def test_task(number: int, items: int) -> Task:
    """The test task of that number; its items are in no training task."""
    return draw_task(random.Random(f"test task {number} {items}"), items, Split.TEST)


def main(
    model: Annotated[
        Path | None, typer.Option(help="Folder of a worklist model; the shipped one by default.")
    ] = None,
    reach: Annotated[bool, typer.Option("--reach", help="Only the figures with targets.")] = False,
    tasks: Annotated[int | None, typer.Option(min=2, help="Test tasks for each arm.")] = None,
    concurrency: Annotated[int, typer.Option(min=1, help="Tasks played at a time.")] = 6,
    out: Annotated[
        Path | None, typer.Option(help="Folder for transcripts, table and plots.")
    ] = None,
) -> None:
    """Play worklists with 1 to 4 workers in every layout, and compare."""
    model = model or model_dir()
    if not is_worklist_model(model):
        raise typer.BadParameter(f"{model} was not made by bench.worklist.train")
    out = out or Path("runs/worklist-reach" if reach else "runs/worklist")
    tasks = tasks or (REACH_TASKS if reach else TASKS)
    arms = list(reach_arms() if reach else every_arm())
    transcripts = Transcripts(out)
    done = {arm: transcripts.done(arm) for arm in arms}
    missing = [(arm, n) for arm in arms for n in range(tasks) if n not in done[arm]]
    if missing:
        _play(missing, model, transcripts, done, concurrency, total=len(arms) * tasks)
    found = {arm: ArmScores.of(arm, [done[arm][number] for number in range(tasks)]) for arm in arms}
    if not reach:
        text = table(found.values())
        (out / "table.md").write_text(text)
        print(text)
        for path in plots(found, 0.7, out):
            console.print(f"plot: {path}")
    rows = list(figures(found))
    for row in rows:
        print(row)
    if reach and not all(row.ok for row in rows):
        raise typer.Exit(1)


def _play(
    missing: Sequence[tuple[Arm, int]],
    model: Path,
    transcripts: Transcripts,
    done: dict[Arm, dict[int, Result]],
    concurrency: int,
    total: int,
) -> None:
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with ExitStack() as stack:
        backends = {}
        for blind in sorted({arm.blind for arm, _ in missing}):
            env = {ENV: BLIND} if blind else {}
            with console.status("starting a server" + " with the planted bug" * blind):
                server = stack.enter_context(ServerProcess(model, SERVER, env))
            backends[blind] = stack.enter_context(Endpoint(server.url))
        pool = stack.enter_context(ThreadPoolExecutor(concurrency))
        bar = stack.enter_context(
            Progress(*columns, TimeElapsedColumn(), TimeRemainingColumn(), console=console)
        )
        shown = bar.add_task("playing", total=total, completed=total - len(missing))
        began = time.monotonic()
        jobs = {
            pool.submit(
                PROGRAM.solve,
                test_task(n, arm.items).prompt,
                arm.settings(seed=n),
                backend=backends[arm.blind],
            ): (arm, n)
            for arm, n in missing
        }
        failed = 0
        try:
            for job in as_completed(jobs):
                arm, number = jobs[job]
                try:
                    result = job.result()
                except ServerGone as error:
                    failed += 1
                    console.print(f"{arm.name}, task {number}: {error}", style="red")
                    if failed == MAX_FAILED:
                        raise
                    continue
                transcripts.add(arm, result)
                done[arm][number] = result
                bar.update(shown, advance=1, description=arm.name)
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
        console.print(f"{len(missing) - failed} tasks in {time.monotonic() - began:.0f} s")
    if failed:
        raise SystemExit(f"{failed} tasks failed: start again to play them.")


if __name__ == "__main__":
    typer.run(main)
