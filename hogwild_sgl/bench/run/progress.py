"""What a person sees while a benchmark runs."""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from collections.abc import Mapping
from types import TracebackType
from typing import Any, Self

from rich.console import Console, Group
from rich.live import Live
from rich.markup import escape
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.table import Table

from hogwild_sgl.bench.report.summary import setting_of

# A log file gets a line this often, a terminal a bar.
LOG_SECONDS = 30.0


class Board:
    """A progress bar with the running accuracy of each setting at its largest budget.

    A context manager. Safe to be told things from many threads.
    """

    def __init__(self, title: str, total: int, console: Console | None = None) -> None:
        self.console = console or Console(stderr=True)
        self._lock = threading.Lock()
        self._grades: dict[str, list[float | None]] = defaultdict(list)
        self._failed = 0
        self._logged = time.monotonic()
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            console=self.console,
        )
        self._task = self._bar.add_task(escape(title), total=total)
        self._live = Live(self._shown(), console=self.console, refresh_per_second=4, transient=True)

    def __enter__(self) -> Self:
        if self.console.is_terminal:
            self._live.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self.console.is_terminal:
            self._live.stop()
        self.console.print(self._table())

    def already(self, record: Mapping[str, Any]) -> None:
        """A result of an earlier start of the same run."""
        self._count(record)
        self._bar.update(self._task, advance=1)

    def begin(self) -> None:
        """What is done now begins here: the remaining time is judged by it alone."""
        done = self._bar.tasks[0].completed
        self._bar.reset(self._task, completed=int(done))

    def finished(self, record: Mapping[str, Any]) -> None:
        self.already(record)
        self._show()

    def failed(self, record: Mapping[str, Any]) -> None:
        with self._lock:
            self._failed += 1
        self.console.print(
            f"[red]failed:[/red] {escape(record['unit'])}: {escape(record['error'])}",
            highlight=False,
        )
        self._show()

    def note(self, line: str) -> None:
        """Something a person should know, above the bar."""
        self.console.print(escape(line), style="yellow", highlight=False, soft_wrap=True)

    def _count(self, record: Mapping[str, Any]) -> None:
        last = max(record["scores"], key=lambda score: score["budget"])
        label = f"{setting_of(record).label} @{last['budget']}"
        with self._lock:
            self._grades[label].append(last["value"])

    def _show(self) -> None:
        if self.console.is_terminal:
            self._live.update(self._shown())
            return
        with self._lock:
            due = time.monotonic() - self._logged >= LOG_SECONDS
            if due:
                self._logged = time.monotonic()
        if due:
            self.console.print(self.line(), highlight=False, soft_wrap=True)

    def line(self) -> str:
        """The state in one line: done, all, and the accuracies so far."""
        task = self._bar.tasks[0]
        with self._lock:
            grades = {label: list(found) for label, found in self._grades.items()}
        shown = ", ".join(f"{label} {_mean(found)}" for label, found in grades.items())
        return f"{int(task.completed)}/{int(task.total or 0)} {shown}"

    def _shown(self) -> Group:
        return Group(self._bar, self._table())

    def _table(self) -> Table:
        table = Table("program", "problems", "accuracy", box=None, pad_edge=False)
        with self._lock:
            for label, found in self._grades.items():
                table.add_row(escape(label), str(len(found)), _mean(found))
            if self._failed:
                table.add_row("[red]failed[/red]", str(self._failed), "")
        return table


def _mean(grades: list[float | None]) -> str:
    known = [grade for grade in grades if grade is not None]
    return f"{100 * sum(known) / len(known):.1f}%" if known else "not graded"
