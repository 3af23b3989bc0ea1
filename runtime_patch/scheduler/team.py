"""A team as the scheduler knows it: what is stored, what is live, what has been published.

Plain data without SGLang; ``team_manager.py`` keeps it true while the scheduler runs.
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch

from runtime_patch.attention.layouts import Layout, find_layout
from runtime_patch.attention.views import Run, Segment
from runtime_patch.team_request import MAX_WORKERS, MIN_WORKERS, Kind


class Writer(Protocol):
    """A request that writes for a team, see ``step_req.py``."""

    rid: str
    kind: Kind
    worker: int | None

    @property
    def grammar_ready(self) -> bool:
        """Has SGLang compiled its grammar, if it has one?"""

    @property
    def written(self) -> int:
        """Its tokens that have KV."""

    @property
    def aborting(self) -> bool:
        """Has it been aborted, though its last forward may still come?"""


@dataclass(frozen=True)
class StoredPart:
    """A stored prompt or header: its segment, and the lock that keeps it in the tree."""

    segment: Segment
    tokens: array
    node: Any
    lock: Any


@dataclass(frozen=True)
class PublishedStep:
    """A step in the tree. worker is None for a voice from outside."""

    index: int
    worker: int | None
    tokens: array
    segment: Segment
    node: Any


EMPTY_SLOTS = torch.empty(0, dtype=torch.int64)


@dataclass
class Team:
    """One problem, its stored texts, published steps and live writers."""

    name: str
    workers: int
    layout_name: str
    headers_after_prompt: bool
    # What the team's requests have to show, see ``team_request.Purpose``.
    key: str = ""
    parts: dict[Kind, StoredPart] = field(default_factory=dict)
    published: list[PublishedStep] = field(default_factory=list)
    # The lock on the path to the tip; None while the tip is the prompt, which has its own.
    tip_lock: Any = None

    # By worker: its live step, and the step that begins when that one is published.
    live: dict[int, Writer] = field(default_factory=dict)
    ahead: dict[int, Writer] = field(default_factory=dict)
    # By request id: readers and outside voices.
    others: dict[str, Writer] = field(default_factory=dict)

    # By worker: the last token it sampled, which has no KV yet.
    carried: dict[int, int] = field(default_factory=dict)
    # By worker: the request id of its last published step.
    newest: dict[int, str] = field(default_factory=dict)
    # Workers whose text ends in a blank line, as the step-end rule left it.
    separated: set[int] = field(default_factory=set)
    # Workers whose last step ended their turn, or filled their view.
    done: set[int] = field(default_factory=set)

    # Workers that the others wait for, see ``lockstep.py``; seconds on the monotonic clock
    # since when they do.
    lockstep: set[int] = field(default_factory=set)
    waiting_since: float | None = None
    # Model forwards in which at least one worker's step had a row: the sequential ones.
    forwards: int = 0
    # Why it is being closed.
    closing: str | None = None
    _runs: dict[frozenset, tuple[int, Run]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not MIN_WORKERS <= self.workers <= MAX_WORKERS:
            raise ValueError(
                f"a team has {MIN_WORKERS} to {MAX_WORKERS} workers, got {self.workers}"
            )
        self.layout: Layout = find_layout(self.layout_name)

    @property
    def tip(self) -> Any:
        """The node under which the next published step is grafted."""
        return self.published[-1].node if self.published else self.parts[Kind.PROMPT].node

    @property
    def history_tokens(self) -> int:
        prompt = self.parts.get(Kind.PROMPT)
        steps = sum(len(step.tokens) for step in self.published)
        return steps + (len(prompt.tokens) if prompt else 0)

    def history(self, *workers: int | None) -> Run:
        """See ``layouts.ViewState``: made anew when a step has been published."""
        of, steps = frozenset(workers), len(self.published)
        if of not in self._runs or self._runs[of][0] != steps:
            some = [step.segment for step in self.published if not of or step.worker in of]
            self._runs[of] = steps, Run(tuple(some))
        return self._runs[of][1]

    @property
    def idle(self) -> bool:
        return not self.live and not self.others and not self.ahead

    @property
    def together(self) -> bool:
        """Has every worker in lockstep a live step that can run?"""
        return all(w in self.live and self.live[w].grammar_ready for w in self.lockstep)

    def writers(self) -> list[Writer]:
        return [*self.live.values(), *self.others.values(), *self.ahead.values()]

    @property
    def kv_tokens(self) -> int:
        """KV slots the team keeps from being reused, each counted once."""
        stored = [part.segment.slots for part in self.parts.values()]
        stored += [step.segment.slots for step in self.published]
        held = len(torch.unique(torch.cat(stored))) if stored else 0
        return held + sum(writer.written for writer in self.writers())

    def add(self, writer: Writer) -> None:
        if writer.kind is not Kind.STEP:
            self.others[writer.rid] = writer
        elif writer.worker in self.live:
            raise ValueError(f"worker {writer.worker} of team {self.name} has a live step already")
        else:
            self.live[writer.worker] = writer

    def add_ahead(self, writer: Writer) -> None:
        """Let a step wait for its worker's live one."""
        if writer.worker in self.ahead:
            raise ValueError(f"worker {writer.worker} of team {self.name} has a step ahead already")
        self.ahead[writer.worker] = writer

    def remove(self, writer: Writer) -> None:
        for place in (self.live, self.ahead):
            if place.get(writer.worker) is writer:
                del place[writer.worker]
        self.others.pop(writer.rid, None)

    def finish_worker_step(
        self, worker: int, carried: int | None, *, separated: bool, done: bool
    ) -> None:
        """A step of the worker's has been published: note where its next one goes on."""
        for workers, belongs in ((self.separated, separated), (self.done, done)):
            workers.discard(worker)
            if belongs:
                workers.add(worker)
        self.carried.pop(worker, None)
        if carried is not None:
            self.carried[worker] = carried

    def part_segment(self, kind: Kind) -> Segment:
        part = self.parts.get(kind)
        return part.segment if part else Segment((self.name, kind), EMPTY_SLOTS, 0)
