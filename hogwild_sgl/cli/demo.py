"""``hogwild demo``: Alice and Bob, from nothing."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import typer

from hogwild_sgl import demo_model
from hogwild_sgl.cli.app import DEFAULT_URL
from hogwild_sgl.cli.check import find_out
from hogwild_sgl.cli.console import err, leaving_cleanly, out, progress
from hogwild_sgl.problem import Problem
from hogwild_sgl.server_process import ServerProcess

PROBLEM = "What can two children do at home on a rainy day?"
# The demo model has 135 million parameters: a long briefing confuses it and sums are beyond
# it, so the built-in problem comes with a few plain words and short steps.
WORDS = {
    "name": "demo-en",
    "system": "{{names}} are friends who plan together. They take turns and write short "
    "sentences. Each sentence names one new thing that nobody has named before.",
    "user": "{{problem}}",
    "preamble": "Here are our ideas, one each time.",
    "header_others": "",
    "header_own": "",
    "examples": "",
    "openers": (),
    "finisher": "\n\n**Summary:** Together we found these ideas:",
}
SAMPLING = {
    "temperature": 0.5,
    "frequency_penalty": 0.8,
    "step_tokens": 40,
    "check_every": 0,
    "finisher_tokens": 60,
}
_LOCAL = ("127.0.0.1", "localhost", "::1")


def run(url: str | None, model: Path | None, problem: str | None, budget: int, seed: int) -> None:
    """Solve a problem on the server at ``url``, or on one of our own."""
    with leaving_cleanly():
        try:
            with _server(url, model) as address:
                _solve(problem, address, budget, seed)
        except KeyboardInterrupt:
            err.print("Stopped.")
            raise typer.Exit(130) from None


@contextmanager
def _server(url: str | None, model: Path | None) -> Iterator[str]:
    """The address of a patched server; one that was started here is stopped at the end."""
    found = find_out(url or DEFAULT_URL)
    if found.healthy and model is None:
        err.print(f"Using the server at {found.url}.", highlight=False)
        yield found.url
        return
    if url is not None and found.reachable:
        if found.healthy:
            raise Problem(
                f"A server runs at {url} already, so --model would not be served.",
                "Leave --model away, or give a --url where nothing runs.",
            )
        raise Problem(found.trouble, found.remedy)
    # Something else on the default port is no reason to fail: take another.
    port = None if found.reachable else _port_of(found.url)
    folder = model or _prepared()
    log = demo_model.cache_dir() / "demo-server.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    log.unlink(missing_ok=True)
    with progress(f"Starting a server with {folder.name}") as show:
        server = ServerProcess(
            folder, ["--skip-server-warmup"], port=port, log_path=log, on_stage=show
        )
        server.start()
    try:
        yield server.url
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
        raise Problem(
            f"No server answers at {url}, and one can be started on this machine only.",
            "Give a --url such as http://127.0.0.1:30000, or leave it away.",
        )
    return parts.port


def _solve(problem: str | None, url: str, budget: int, seed: int) -> None:
    from dataclasses import replace

    import programs
    from hogwild_sgl import prompts
    from programs.cli import summary
    from programs.display import Columns
    from programs.settings import Settings

    if problem is None:
        formatting = replace(prompts.formatting("open"), **WORDS)
        settings = Settings(formatting=formatting, budget=budget, seed=seed, **SAMPLING)
    else:
        settings = Settings(budget=budget, seed=seed)
    out.print(f"[bold]Problem:[/] {problem or PROBLEM}", highlight=False)
    with Columns(settings.worker_names, out) as columns:
        result = programs.find("alice_bob").solve(
            problem or PROBLEM, settings, url=url, watch=columns
        )
    summary(result, out)
