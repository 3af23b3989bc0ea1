"""Shows a team while it writes: a column for each worker, or plain lines where the output
is no terminal."""

from __future__ import annotations

import threading
from types import TracebackType
from typing import Self

from rich.console import Console, ConsoleOptions, RenderResult
from rich.layout import Layout
from rich.live import Live
from rich.panel import Panel
from rich.text import Text

from hogwild_sgl.lang.events import Dropped, Event, Grown, Published, Read, Said, Started

COLOURS = ("cyan", "magenta", "green", "yellow", "blue", "red")
# Columns narrower than this cannot be read; more workers go into a second row.
WIDTH = 30


class Column:
    """One worker's text so far. kept: length of what is published."""

    def __init__(self, name: str, colour: str) -> None:
        self.name, self.colour = name, colour
        self.text = Text()
        self.kept = 0
        self.steps = self.tokens = 0
        self.writing = False

    def begin(self, fed: str) -> None:
        # Between the first step and the top of its column nothing has to be separated.
        self.text.append(fed if self.text else fed.lstrip("\n"), style="dim")
        self.writing = True

    def grow(self, text: str, tokens: int) -> None:
        self.text.append(text)
        self.tokens += tokens

    def keep(self) -> None:
        self.steps += 1
        self.writing = False
        self.kept = len(self.text)

    def drop(self) -> None:
        self.text = self.text[: self.kept]
        self.writing = False
        self.text.append(" (dropped) ", style="red")
        self.kept = len(self.text)

    def say(self, text: str) -> None:
        """A voice from outside, shown to all; a half-written step goes on after it."""
        live = self.text[self.kept :]
        self.text = self.text[: self.kept]
        self.text.append("\n" + text.strip() + "\n\n", style="bold yellow")
        self.kept = len(self.text)
        self.text.append_text(live)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        height = (options.height or console.height) - 2
        lines = self.text.wrap(console, max(1, options.max_width - 4))
        shown = Text("\n").join(lines[-max(1, height) :])
        step = self.steps + self.writing
        title = f"{self.name} · step {step} · {self.tokens} tokens"
        yield Panel(shown, title=title, border_style=self.colour, height=height + 2)


class Columns:
    """Watches a team; a context manager. Call it with the team's events."""

    def __init__(self, names: tuple[str, ...], console: Console | None = None) -> None:
        self.console = console or Console()
        self.columns = [Column(name, COLOURS[i % len(COLOURS)]) for i, name in enumerate(names)]
        self._lock = threading.Lock()
        self._last: list[str] = []
        self._live = (
            Live(self, console=self.console, refresh_per_second=8, screen=False, transient=False)
            if self.console.is_terminal
            else None
        )

    def __enter__(self) -> Self:
        if self._live:
            self._live.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._live:
            self._live.stop()
        for text in self._last:
            self.console.print(Text(text.strip("\n")))

    def __call__(self, event: Event) -> None:
        with self._lock:
            self._take(event)

    def _take(self, event: Event) -> None:
        if isinstance(event, Said) and event.worker is None:
            for column in self.columns:
                column.say(event.text)
            self._line(event.text)
            return
        if isinstance(event, Read) and event.purpose == "finish":
            self._last.append(event.fed + event.reply.text)
        if not isinstance(event, (Started, Grown, Published, Dropped)):
            return
        column = self.columns[event.worker]
        if isinstance(event, Started):
            column.begin(event.fed)
        elif isinstance(event, Grown):
            column.grow(event.text, event.tokens)
        elif isinstance(event, Published):
            column.keep()
            self._line(event.fed + event.reply.text)
        else:
            column.drop()

    def _line(self, text: str) -> None:
        if self._live is None:
            self.console.print(Text(text.strip("\n")), end="\n\n")

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        with self._lock:
            across = max(1, min(len(self.columns), options.max_width // WIDTH))
            rows = [self.columns[i : i + across] for i in range(0, len(self.columns), across)]
            height = max(6, min(console.height - 2, 40) // len(rows)) * len(rows)
            layout = Layout()
            layout.split_column(*(_row(row) for row in rows))
            yield from console.render(layout, options.update(height=height))


def _row(columns: list[Column]) -> Layout:
    row = Layout()
    row.split_row(*(Layout(column) for column in columns))
    return row
