"""What the server process knows about a team, from the scheduler's events: enough to answer
for it."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections import deque
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any

from runtime_patch.errors import NOT_BEGUN, TeamError


@dataclass
class LiveStep:
    """A request under way."""

    rid: str
    worker: int | None
    reader: bool
    # A text that is published without generating.
    said: bool
    # The worker's how many-th step; None for readers and outside voices.
    number: int | None
    # Tokens fed: those of its text, and the worker's carried one once it has begun.
    fed_tokens: int
    # What the scheduler said when it first ran.
    begun: asyncio.Future
    # What the scheduler said when it was over: (kind, data), kind published, read or dropped.
    ended: asyncio.Future
    output: list[int] = field(default_factory=list)
    text: str = ""
    # All its text is out; text comes through the detokenizer and may lag behind the
    # scheduler's events.
    delivered: bool = False


@dataclass
class WorkerState:
    """A worker: its name, what it has published, and its steps under way."""

    name: str
    steps: int = 0
    tokens: int = 0
    live: LiveStep | None = None
    # Begins when the live one has been published.
    ahead: LiveStep | None = None


@dataclass
class TeamState:
    """One open (or just closed) team in the server process."""

    name: str
    layout: str
    seed: int
    workers: list[WorkerState]
    dp_rank: int
    prompt_tokens: int
    header_tokens: dict[str, int]
    context_length: int
    # Seconds without use after which it is closed; None for never.
    idle_timeout: float | None
    # Shown by the team's requests to the scheduler, see ``team_request.Purpose``.
    key: str = field(default_factory=lambda: secrets.token_hex(16), repr=False)
    # Live requests that are not a worker's step: readers and outside voices.
    unnumbered: dict[str, LiveStep] = field(default_factory=dict)
    # The published steps as a snapshot shows them.
    steps: list[dict] = field(default_factory=list)
    opened: bool = False
    closing: bool = False
    # Why it was closed.
    closed: str | None = None
    closed_event: asyncio.Event = field(default_factory=asyncio.Event)
    # Seconds on the monotonic clock.
    last_used: float = field(default_factory=time.monotonic)
    listeners: list[asyncio.Queue] = field(default_factory=list)
    # Events that wait for the text of a step, each with that step, and those behind.
    outbox: deque[tuple[LiveStep | None, dict]] = field(default_factory=deque)

    @property
    def busy(self) -> bool:
        return bool(self.all_live())

    def idle_since(self, now: float) -> bool:
        """Has nobody used the team for its idle time?"""
        if self.idle_timeout is None or not self.opened or self.busy or self.closing:
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
        raise TeamError(f"no worker {worker!r} in this team; its workers are {listed}")

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
        self.emit({"type": "said" if live.said else "published", **line}, after=live)

    def begin(self, live: LiveStep, ahead: bool = False, number: int | None = None) -> None:
        """Take the worker for a step, or answer 409 if it has a live one.

        ahead: with a live one, take the place behind it. number: answer 409 unless it
        is the number that the step has then."""
        if live.reader or live.worker is None:
            self.unnumbered[live.rid] = live
            return
        state = self.workers[live.worker]
        found = state.steps + (1 if state.live is None else 2)
        if number not in (None, found):
            raise TeamError(
                f"this would be step {found} of {state.name}, not {number}: what it was to follow "
                "has been dropped, or somebody else writes for that worker",
                HTTPStatus.CONFLICT,
                NOT_BEGUN,
            )
        if state.live is None:
            state.live = live
        elif not ahead:
            raise TeamError(
                f"{state.name} already has a live step; wait for it, abort it, or send this one "
                'with "after_live": true',
                HTTPStatus.CONFLICT,
                "live_step",
            )
        elif state.ahead is not None:
            raise TeamError(
                f"{state.name} already has a step waiting behind its live one",
                HTTPStatus.CONFLICT,
                "queued_step",
            )
        else:
            state.ahead = live
            live.number += 1

    def end(self, live: LiveStep) -> None:
        self.unnumbered.pop(live.rid, None)
        for state in self.workers:
            if state.ahead is live:
                state.ahead = None
            if state.live is live:
                state.live, state.ahead = state.ahead, None

    def all_live(self) -> list[LiveStep]:
        steps = [step for w in self.workers for step in (w.live, w.ahead) if step]
        return [*self.unnumbered.values(), *steps]

    def live_by_rid(self, rid: str) -> LiveStep | None:
        return next((live for live in self.all_live() if live.rid == rid), None)

    def emit(self, event: dict[str, Any], after: LiveStep | None = None) -> None:
        """Hand an event to everybody who listens, in order, and behind a step's whole text."""
        self.outbox.append((after, event))
        self.flush()

    def emit_text(self, live: LiveStep, text: str) -> None:
        self._send({"type": "text", "text": text, **self.who(live)})

    def flush(self, everything: bool = False) -> None:
        """Hand out the events that need not wait any more."""
        while self.outbox:
            step, event = self.outbox[0]
            if not (everything or step is None or step.delivered or step.said):
                return
            self.outbox.popleft()
            self._send(event)

    def _send(self, event: dict[str, Any]) -> None:
        for queue in self.listeners:
            queue.put_nowait(event)

    def require_open(self) -> None:
        if self.closed:
            raise TeamError(
                f"team {self.name} is closed ({self.closed})", HTTPStatus.GONE, "team_closed"
            )
