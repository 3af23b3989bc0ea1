"""``hogwild demo``: a team at work, from nothing."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import typer

from hogwild_sgl.cli.app import DEFAULT_URL
from hogwild_sgl.cli.check import find_out
from hogwild_sgl.cli.console import err, leaving_cleanly, progress, saying_stopped
from hogwild_sgl.errors import UserError
from hogwild_sgl.launch import demo_model
from hogwild_sgl.launch.server_process import ServerProcess
from hogwild_sgl.worklist import is_worklist_model, model_dir

_LOCAL = ("127.0.0.1", "localhost", "::1")


@dataclass(frozen=True)
class Request:
    """What the demo was asked for.

    url, model, problem, budget: None where nothing was said. smollm2: talk with the chat
    model rather than work through a list of sums.
    """

    url: str | None
    model: Path | None
    smollm2: bool
    problem: str | None
    workers: int
    budget: int | None
    seed: int


def run(request: Request) -> None:
    """Let a team work on the server at ``url``, or on one of our own."""
    if request.smollm2 and request.model is not None:
        raise typer.BadParameter("give either --smollm2 or --model")
    with leaving_cleanly(), saying_stopped(), _server(request) as (url, model):
        _play(request, url, model)


def _play(request: Request, url: str, model: str) -> None:
    if is_worklist_model(Path(model)):
        from hogwild_sgl.cli.demo.worklist import play
    else:
        from hogwild_sgl.cli.demo.chat import play
    play(request, url)


@contextmanager
def _server(request: Request) -> Iterator[tuple[str, str]]:
    """Address and model of a patched server; one that was started here is stopped at the end."""
    url, model = request.url, request.model
    found = find_out(url or DEFAULT_URL)
    if found.healthy and model is None and not request.smollm2:
        served = str(found.about["model"])
        err.print(f"Using the server at {found.url}, which has {served}.", highlight=False)
        yield found.url, served
        return
    if url is not None and found.reachable:
        if found.healthy:
            raise UserError(
                f"A server runs at {url} already, so no other model would be served.",
                "Leave --model and --smollm2 away, or give a --url where nothing runs.",
            )
        raise UserError(found.trouble, found.remedy)
    # Something else on the default port is no reason to fail: take another.
    port = None if found.reachable else _port_of(found.url)
    folder = model or (_prepared() if request.smollm2 else model_dir())
    log = demo_model.cache_dir() / "demo-server.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    log.unlink(missing_ok=True)
    named = "the worklist model" if folder == model_dir() else folder.name
    with progress(f"Starting a server with {named}") as show:
        server = ServerProcess(
            folder, ["--skip-server-warmup"], port=port, log_path=log, on_stage=show
        )
        server.start()
    try:
        yield server.url, str(folder)
    finally:
        with progress("Stopping the server") as show:
            show("a second or two")
            server.stop()


def _prepared() -> Path:
    with progress(f"Preparing {demo_model.NAME}") as show:
        return demo_model.prepare(show)


def _port_of(url: str) -> int:
    parts = urlsplit(url)
    if parts.scheme != "http" or parts.hostname not in _LOCAL or not parts.port:
        raise UserError(
            f"No server answers at {url}, and one can be started on this machine only.",
            "Give a --url such as http://127.0.0.1:30000, or leave it away.",
        )
    return parts.port
