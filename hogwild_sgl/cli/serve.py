"""``hogwild serve``: a server in the foreground."""

from __future__ import annotations

import threading
from collections.abc import Sequence

import typer
from rich.text import Text

from hogwild_sgl.cli.console import err, leaving_cleanly, progress
from hogwild_sgl.problem import Problem
from hogwild_sgl.server_process import ServerProcess


def run(model: str, host: str, port: int, args: Sequence[str], start_timeout: float) -> None:
    """Serve until Ctrl-C or until the server ends; its log goes to stderr."""
    if model.startswith("-"):
        raise Problem(
            f"MODEL comes first: `hogwild serve MODEL {model} ...`, "
            "and the options for SGLang after it."
        )
    stopping = threading.Event()

    def echo(line: str) -> None:
        # What SGLang says of an interrupt is a traceback that helps nobody.
        if not stopping.is_set():
            err.print(Text(line), soft_wrap=True)

    with leaving_cleanly():
        with progress(f"Starting a server with {model}") as show:
            server = ServerProcess(
                model,
                args,
                port=port,
                host=host,
                start_timeout=start_timeout,
                on_line=echo,
                on_stage=show,
            )
            server.start()
        try:
            err.print(
                f"[bold green]Ready:[/] {server.url} with the hogwild patch. "
                "Ctrl-C stops it. In another terminal:\n"
                f'  hogwild solve "What is 12 * 13?" --url {server.url}',
                highlight=False,
            )
            status = server.wait()
        except KeyboardInterrupt:
            stopping.set()
            err.print("Stopping the server.")
            raise typer.Exit(130) from None
        finally:
            server.stop()
    raise Problem(f"The server ended by itself (exit status {status}).", "Its log is above.")
