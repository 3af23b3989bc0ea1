"""``hogwild serve``: a server in the foreground."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rich.text import Text

from hogwild_sgl.cli.console import err, leaving_cleanly, progress, saying_stopped
from hogwild_sgl.errors import UserError
from hogwild_sgl.launch.server_process import ServerProcess

# SGLang logs all its settings in one line of some 19 000 characters: four screens.
_LINE = 1000


def run(model: str, host: str, port: int, args: Sequence[str], start_timeout: float) -> None:
    """Serve until Ctrl-C or until the server ends; its log goes to stderr."""
    if model.startswith("-"):
        raise UserError(
            f"MODEL comes first: `hogwild serve MODEL {model} ...`, "
            "and the options for SGLang after it."
        )
    with leaving_cleanly(), saying_stopped():
        with progress(f"Starting a server with {Path(model).name}") as show:
            server = ServerProcess(
                model,
                args,
                port=port,
                host=host,
                start_timeout=start_timeout,
                on_line=_show,
                on_stage=show,
            )
            server.start()
        try:
            err.print(
                f"[bold green]Ready:[/] {server.url} with the hogwild patch. "
                "Ctrl-C stops it. In another terminal:\n"
                f'  hogwild solve "What is 12 * 13?" --url {server.url}',
                highlight=False,
                soft_wrap=True,
            )
            status = server.wait()
        finally:
            server.stop()
    raise UserError(f"The server ended by itself (exit status {status}).", "Its log is above.")


def _show(line: str) -> None:
    """A line of the log; on a terminal a very long one is cut, and says so."""
    if err.is_terminal and len(line) > _LINE:
        line = f"{line[:_LINE]} ... ({len(line) - _LINE} more characters; 2>FILE keeps them)"
    err.print(Text(line), soft_wrap=True)
