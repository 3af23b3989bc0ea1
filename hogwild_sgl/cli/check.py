"""``hogwild check``: what is behind a URL."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import httpx
import typer
from rich.markup import escape
from rich.table import Table

from hogwild_sgl.cli.console import out, show_error
from hogwild_sgl.client.client import Client
from hogwild_sgl.errors import HogwildError, ServerGone, UserError

_TIMEOUT = 30.0


@dataclass(frozen=True)
class Findings:
    """What a server is. Each of the three questions is asked if the one before had a yes.

    about: the reply of ``GET /hogwild``. trouble, remedy: why the last answer was no.
    """

    url: str
    reachable: bool = False
    patched: bool = False
    healthy: bool = False
    about: Mapping[str, Any] = field(default_factory=dict)
    trouble: str = ""
    remedy: str = ""

    def __post_init__(self) -> None:
        if (self.patched and not self.reachable) or (self.healthy and not self.patched):
            raise ValueError("a healthy server is patched, and a patched one is reachable")
        if self.healthy == bool(self.trouble):
            raise ValueError("there is trouble unless the server is healthy")


def find_out(url: str) -> Findings:
    """Ask the server at ``url``; raises for nothing that a server does or fails to do."""
    url = url.rstrip("/")
    try:
        reply = _get(f"{url}/model_info")
    except (httpx.TransportError, httpx.InvalidURL) as error:
        gone = ServerGone.unreachable(url, error)
        return Findings(url, trouble=gone.message, remedy=gone.remedy)
    if reply.status_code == 404:
        return Findings(
            url,
            reachable=True,
            trouble=f"What answers at {url} is not an SGLang server.",
            remedy="Give the --url of an SGLang server.",
        )
    try:
        with Client(url, timeout=_TIMEOUT) as client:
            about = client.info()
    except HogwildError as error:
        return Findings(url, reachable=True, trouble=error.message, remedy=error.remedy)
    try:
        # Generates one token, unless the server is generating already.
        status = _get(f"{url}/health").status_code
        trouble = "" if status == 200 else f"The server does not generate: /health gave {status}."
    except httpx.TransportError as error:
        trouble = f"The server does not generate: /health gave no reply ({error})."
    return Findings(
        url,
        reachable=True,
        patched=True,
        healthy=not trouble,
        about=about,
        trouble=trouble,
        remedy=trouble and "Its log says why; if its scheduler has stopped, start it again.",
    )


def run(url: str, *, as_json: bool = False) -> None:
    """Print the findings; exit status 1 unless the server is ready for teams."""
    findings = find_out(url)
    if as_json:
        out.print_json(json.dumps(asdict(findings)))
    else:
        out.print(_table(findings))
        if findings.trouble:
            show_error(UserError(findings.trouble, findings.remedy))
    if not findings.healthy:
        raise typer.Exit(1)


def _get(address: str) -> httpx.Response:
    return httpx.get(address, timeout=_TIMEOUT, trust_env=False)


def _table(findings: Findings) -> Table:
    table = Table(show_header=False, box=None, padding=(0, 2, 0, 0))
    table.add_row("server", escape(findings.url))
    asked = True
    for name in ("reachable", "patched", "healthy"):
        yes = getattr(findings, name)
        table.add_row(name, "[green]yes[/]" if yes else "[red]no[/]" if asked else "not asked")
        asked = yes
    for name, value in findings.about.items():
        if name != "active":
            shown = ", ".join(map(str, value)) if isinstance(value, list) else str(value)
            table.add_row(name.replace("_", " "), escape(shown))
    return table
