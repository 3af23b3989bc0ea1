"""Speed of n workers over one cache: the paper's Table 1 for this project and its rivals.

    python -m bench.speed --model MODEL            the whole table, JSON, Markdown and a plot
    python -m bench.speed --quick                  a small table
    python -m bench.speed --reach                  only the figures with targets

Two servers run at once, this project's and stock SGLang with its default backend for the
device (torch_native on a CPU); measurements take turns between them, and every figure is
a median over rounds of one run. The machine should do nothing else.
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated

import torch
import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from hogwild_sgl.bench.speed.contenders import ByText, Hogwild, Independent, Server
from hogwild_sgl.bench.speed.floor import Floor, read_bandwidth
from hogwild_sgl.bench.speed.gaps import gaps
from hogwild_sgl.bench.speed.reach import Figure, attention_figures, table_figures
from hogwild_sgl.bench.speed.table import Cell, Table
from hogwild_sgl.launch.server_process import ServerProcess

LONG_CONTEXT = {"SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN": "1"}
SLOW_SECONDS = 20  # what takes longer is measured in the first round only
SLOW_TOKENS = 16  # stock SGLang's tokens per measurement; at long caches each takes a second
GRID = ((1, 2, 4, 8), (1024, 2048, 4096, 8192, 16384))
QUICK = ((1, 4), (1024, 4096))
REACH = ((1, 4), (1024, 4096, 8192))

console = Console(stderr=True)


class Session:
    """Both servers and the floor of one run."""

    def __init__(self, stack: ExitStack, model: Path, caches: Sequence[int], workers: int):
        room = max(caches) + 4096
        pool = str(2 * sum(caches) + 4096 * workers)
        args = ["--context-length", str(room), "--max-total-tokens", pool]
        args += ["--chunked-prefill-size", "2048", "--sleep-on-idle"]
        on_cpu = ["--device", "cpu", "--attention-backend", "torch_native"]
        stock = [] if torch.cuda.is_available() else on_cpu
        with console.status("starting the hogwild server"):
            ours = stack.enter_context(ServerProcess(model, args, LONG_CONTEXT))
        with console.status("starting the stock server"):
            theirs = stack.enter_context(
                ServerProcess(model, [*args, *stock], LONG_CONTEXT, patched=False)
            )
        vocabulary = _vocabulary(model)
        self.hogwild = Hogwild(Server(ours.url, vocabulary))
        self.plain = Independent(Server(ours.url, vocabulary), "plain")
        self.independent = Independent(Server(theirs.url, vocabulary))
        self.text = ByText(Server(theirs.url, vocabulary))
        self.own_text = ByText(Server(ours.url, vocabulary))
        self.floor = Floor.of(model, torch.bfloat16)

    def cells(
        self,
        workers: Sequence[int],
        caches: Sequence[int],
        tokens: int,
        rounds: int,
        text: bool = True,
    ):
        """Every cell of the grid, the ways taking turns. text: collaboration by text too, on
        this project's server, which serves it faster than a stock one."""
        bandwidth = read_bandwidth()
        grid = [(n, c) for c in caches for n in workers]
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
        ways = (
            (self.hogwild, tokens),
            (self.plain, tokens),
            (self.independent, min(tokens, SLOW_TOKENS)),
        )
        slow: set[tuple[str, int, int]] = set()
        with Progress(*columns, TimeElapsedColumn(), console=console) as progress:
            task = progress.add_task("measuring", total=len(grid) * rounds)
            for round_number in range(rounds):
                for n, cache in grid:
                    progress.update(task, description=f"{n} workers, {cache} cached")
                    for way, wanted in ways:
                        if (way.name, n, cache) in slow:
                            continue
                        if round_number == 0:
                            way.warm_up(n, cache, wanted)
                        began = time.monotonic()
                        rate = way.measure(n, cache, wanted)
                        if time.monotonic() - began > SLOW_SECONDS:
                            slow.add((way.name, n, cache))
                        yield Cell(way.name, n, cache, rate.tokens_per_second, rate.ms_per_forward)
                    if text and n > 1:
                        rate = self.own_text.collaborate(n, cache, 3, max(8, tokens // 3))
                        yield Cell("text", n, cache, rate, 1000 * n / rate)
                    for name, seconds in (
                        ("linear", self.floor.linear_seconds(n, rounds=5)),
                        ("memory", self.floor.read_seconds(cache, bandwidth)),
                    ):
                        yield Cell(name, n, cache, n / seconds, 1000 * seconds)
                    progress.advance(task)

    def text_figure(self, rounds: int, steps: int = 3, step_tokens: int = 32) -> Figure:
        """The same collaboration, seen in the cache and exchanged as text."""
        ratios = []
        for _ in range(rounds):
            ours = self.hogwild.collaborate(2, 4096, steps, step_tokens)
            ratios.append(ours / self.text.collaborate(2, 4096, steps, step_tokens))
        return Figure("2 workers at 4k over collaboration by text", statistics.median(ratios), 2)

    def gap_figures(self) -> list[Figure]:
        """Forwards that a worker loses between two steps: of all its steps the usual number
        when they are sent one by one, the largest in ``Team.reason``."""
        from hogwild_sgl.program.settings import Settings
        from hogwild_sgl.programs import find

        one_by_one = self.hogwild.gaps(workers=4, steps=8, step_tokens=16)
        settings = Settings(
            workers=4, budget=128, step_tokens=16, check_every=0, early_stop=False, temperature=1.0
        )
        result = find("team").solve("Count.", settings, url=self.hogwild.server.url)
        return [
            Figure(
                "forwards between steps sent one by one",
                statistics.median(one_by_one),
                2,
                at_most=True,
            ),
            Figure("forwards between steps of reason()", max(gaps(result.steps)), 0, at_most=True),
        ]

    def memory_figure(self) -> Figure:
        held = [self.hogwild.kv_tokens(n, 8192, 64) for n in (4, 1)]
        return Figure("KV tokens of 4 workers over 1 at 8k", held[0] / held[1], 1.1, at_most=True)


def main(
    model: Annotated[
        str | None, typer.Option(help="Model folder; the demo model by default.")
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="A small table.")] = False,
    reach: Annotated[bool, typer.Option("--reach", help="Only the figures with targets.")] = False,
    grid_workers: Annotated[str, typer.Option("--workers", help="For example 1,2,4.")] = "",
    grid_caches: Annotated[str, typer.Option("--caches", help="For example 256,1024.")] = "",
    tokens: Annotated[int, typer.Option(min=8, help="Tokens per worker and measurement.")] = 48,
    rounds: Annotated[int, typer.Option(min=1, help="Rounds to take medians over.")] = 3,
    out: Annotated[Path, typer.Option(help="Folder for speed.json, speed.md, speed.png.")] = Path(
        "runs/speed"
    ),
) -> None:
    """Tokens/s, ms per forward and KV held for 1 to 8 workers over one cache."""
    folder = Path(model) if model else _demo_model()
    workers, caches = REACH if reach else QUICK if quick else GRID
    workers, caches = _numbers(grid_workers) or workers, _numbers(grid_caches) or caches
    if reach and (grid_workers or grid_caches):
        raise typer.BadParameter("--reach measures fixed sizes: drop --workers and --caches")
    # Attention first, while no server is there to share the cores.
    figures = attention_figures(21) if reach else []
    for figure in figures:
        print(figure, flush=True)
    with ExitStack() as stack:
        session = Session(stack, folder, caches, max(workers))
        table = Table(list(session.cells(workers, caches, tokens, rounds, text=not reach)))
        more = [*table_figures(table)] if reach else []
        more += [session.text_figure(1), session.memory_figure()] if reach else []
        more += session.gap_figures()
    for figure in more:
        print(figure, flush=True)
    settings = {
        "model": folder.name,
        "cores": os.cpu_count(),
        "torch": torch.__version__,
        "tokens per worker": tokens,
        "rounds": rounds,
        "date": time.strftime("%Y-%m-%d"),
    }
    table.write(out, tokens=1024, settings=settings)
    print(table.markdown(tokens=1024))
    console.print(f"written to {out}")
    if not all(figure.ok for figure in [*figures, *more]):
        raise typer.Exit(1)


def _numbers(text: str) -> tuple[int, ...]:
    try:
        return tuple(int(part) for part in text.split(",") if part)
    except ValueError as error:
        raise typer.BadParameter(f"whole numbers with commas between, not {text!r}") from error


def _vocabulary(model: Path) -> int:
    import json

    return json.loads((model / "config.json").read_text())["vocab_size"]


def _demo_model() -> Path:
    from hogwild_sgl.launch.demo_model import prepare

    return prepare()


if __name__ == "__main__":
    typer.run(main)
