"""What the commands share: consoles, progress, and the way to leave."""

from __future__ import annotations

import signal
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from hogwild_sgl.errors import UserError

STOPPED = 130  # as a shell reports Ctrl-C

out = Console()
err = Console(stderr=True)


def show_error(problem: UserError) -> None:
    """What went wrong in red, and below it what to do."""
    err.print(f"[bold red]Error:[/] {escape(problem.message)}", highlight=False, soft_wrap=True)
    if problem.remedy:
        err.print(escape(problem.remedy), highlight=False, soft_wrap=True)


@contextmanager
def progress(title: str) -> Iterator[Callable[[str], None]]:
    """Yields a function that shows the stage reached, with the time gone by.

    On a terminal one line that is redrawn; elsewhere (a log file) a line per stage.
    """
    if not err.is_terminal:

        def note(stage: str) -> None:
            err.print(f"{title}: {stage}", markup=False, highlight=False, soft_wrap=True)

        yield note
        return
    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    # stdout is left alone: it may be a file that only wants the results.
    with Progress(*columns, console=err, transient=True, redirect_stdout=False) as bar:
        task = bar.add_task(escape(title), total=None)
        yield lambda stage: bar.update(task, description=f"{escape(title)}: {escape(stage)}")


def hush_tracebacks() -> None:
    """SGLang's interpreter warns with a whole traceback of each error that it also keeps for
    the program, which shows it as a message."""
    warnings.filterwarnings("ignore", "Error in stream_executor", UserWarning)


@contextmanager
def saying_stopped() -> Iterator[None]:
    """Ctrl-C ends the command with a word, and with the status by which a shell reports it."""
    try:
        yield
    except KeyboardInterrupt:
        err.print("Stopped.")
        raise typer.Exit(STOPPED) from None


@contextmanager
def leaving_cleanly() -> Iterator[None]:
    """SIGTERM and SIGHUP raise an exception as Ctrl-C does, so that everything started in
    the block is stopped on the way out; Ctrl-C does so even in a job that a script put
    into the background, where a shell has it ignored."""

    def leave(number: int, frame: FrameType | None) -> None:
        sys.exit(128 + number)

    handlers = {
        signal.SIGINT: signal.default_int_handler,
        signal.SIGTERM: leave,
        signal.SIGHUP: leave,
    }
    before = {number: signal.signal(number, handler) for number, handler in handlers.items()}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
