"""What the server process knows about a team: enough to answer for it and to feed its steps."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any

from runtime_patch.errors import ServiceError


@dataclass
class LiveStep:
    """A request under way.

    begun, ended: what the scheduler said when it first ran, and when it was over, the
        latter as (kind, data) with kind published, read or dropped.
    said: a text that is published without generating.
    """

    rid: str
    worker: int | None
    reader: bool
    said: bool
    number: int | None
    fed: list[int]
    ended: asyncio.Future
    begun: asyncio.Future
    output: list[int] = field(default_factory=list)
    text: str = ""


@dataclass
class WorkerState:
    """A worker: its name, what it has published, and the token it carries.

    carried: the last token it sampled, which has no KV yet and is fed first in its next
        step; None at the start, after a text was said for it, and after an end token.
    """

    name: str
    steps: int = 0
    tokens: int = 0
    carried: int | None = None
    live: LiveStep | None = None


@dataclass
class TeamMirror:
    """One open (or just closed) team in the server process.

    unnumbered: live requests that are not a worker's step: readers and outside voices.
    steps: the published steps as a snapshot shows them.
    """

    name: str
    layout: str
    seed: int
    workers: list[WorkerState]
    dp_rank: int
    prompt_tokens: int
    header_tokens: dict[str, int]
    context_length: int
    idle_timeout: float | None
    unnumbered: dict[str, LiveStep] = field(default_factory=dict)
    steps: list[dict] = field(default_factory=list)
    closed: str | None = None
    closing: bool = False
    closed_event: asyncio.Event = field(default_factory=asyncio.Event)
    last_used: float = field(default_factory=time.monotonic)
    listeners: list[asyncio.Queue] = field(default_factory=list)

    @property
    def busy(self) -> bool:
        return bool(self.all_live())

    def idle_since(self, now: float) -> bool:
        """Has nobody used the team for its idle time?"""
        if self.idle_timeout is None or self.busy or self.closing:
            return False
        return now - self.last_used > self.idle_timeout

    def number_of(self, worker: int | str) -> int:
        """A worker's number, from its number or name. 400 if there is none."""
        names = [state.name for state in self.workers]
        if isinstance(worker, str) and worker in names:
            return names.index(worker)
        if isinstance(worker, int) and 0 <= worker < len(names):
            return worker
        listed = ", ".join(f"{i} {name}" for i, name in enumerate(names))
        raise ServiceError(f"no worker {worker!r} in this team; its workers are {listed}")

    def who(self, live: LiveStep) -> dict[str, Any]:
        name = None if live.worker is None else self.workers[live.worker].name
        return {"worker": live.worker, "name": name, "number": live.number}

    def publish(self, live: LiveStep, data: dict[str, Any], text: str) -> None:
        """Note a published step, in the order in which the scheduler published."""
        line = {
            "index": data["index"],
            **self.who(live),
            "tokens": len(data["tokens"]),
            "text": text,
        }
        self.steps.append(line)
        if live.worker is not None:
            state = self.workers[live.worker]
            state.steps += 1
            state.tokens += len(data["tokens"])
            state.carried = data["carried"]
        self.tell({"type": "said" if live.said else "published", **line})

    def begin(self, live: LiveStep) -> None:
        """Take the worker for a step, or answer 409 if it has a live one."""
        if live.reader or live.worker is None:
            self.unnumbered[live.rid] = live
            return
        state = self.workers[live.worker]
        if state.live is not None:
            raise ServiceError(
                f"{state.name} already has a live step; wait for it or abort it",
                HTTPStatus.CONFLICT,
                "live_step",
            )
        state.live = live

    def end(self, live: LiveStep) -> None:
        self.unnumbered.pop(live.rid, None)
        if live.worker is not None and self.workers[live.worker].live is live:
            self.workers[live.worker].live = None

    def all_live(self) -> list[LiveStep]:
        return [*self.unnumbered.values(), *(w.live for w in self.workers if w.live)]

    def live_by_rid(self, rid: str) -> LiveStep | None:
        return next((live for live in self.all_live() if live.rid == rid), None)

    def tell(self, event: dict[str, Any]) -> None:
        """Hand an event to everybody who listens."""
        for queue in self.listeners:
            queue.put_nowait(event)

    def require_open(self) -> None:
        if self.closed:
            raise ServiceError(
                f"team {self.name} is closed ({self.closed})", HTTPStatus.GONE, "team_closed"
            )
