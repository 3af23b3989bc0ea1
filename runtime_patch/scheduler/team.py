"""A team as the scheduler knows it: what is stored, what is live, what has been published.

Plain data without SGLang; ``book.py`` keeps it true while the scheduler runs.
"""

from __future__ import annotations

from array import array
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Protocol

import torch

from runtime_patch.attention.layouts import Layout, find_layout, outside_view, reader_view
from runtime_patch.attention.views import Part, Run, Segment

MIN_WORKERS, MAX_WORKERS = 2, 16


class Kind(StrEnum):
    """What a team's request writes."""

    PROMPT = "prompt"
    HEADER_OTHERS = "header_others"
    HEADER_OWN = "header_own"
    STEP = "step"
    READER = "reader"
    SAY = "say"

    @property
    def is_part(self) -> bool:
        """Is it one of the three texts stored when a team opens?"""
        return self in (Kind.PROMPT, Kind.HEADER_OTHERS, Kind.HEADER_OWN)

    @property
    def publishes(self) -> bool:
        return self in (Kind.STEP, Kind.SAY)


class Writer(Protocol):
    """A request that writes for a team, see ``step_request.py``."""

    rid: str
    kind: Kind
    worker: int | None

    @property
    def written(self) -> int:
        """Its tokens that have KV."""

    @property
    def doomed(self) -> bool:
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
    """One problem, its stored texts, published steps and live writers.

    forwards: model forwards in which at least one worker's step had a row: the team's
        sequential passes.
    carried: per worker the last token it sampled, which has no KV yet.
    queued: per worker the step that begins when its live one is published.
    newest: per worker the request id of its last published step.
    after_a_break: workers whose text ends in a blank line, as the step-end rule left it.
    turn_over: workers whose last step ended their turn, or filled their view.
    lockstep: workers that the others wait for, see ``lockstep.py``; waiting_since: seconds
        on the monotonic clock since when they do.
    key: what the team's requests have to show, see ``messages.Purpose``.
    """

    name: str
    workers: int
    layout_name: str
    headers_after_prompt: bool
    parts: dict[Kind, StoredPart] = field(default_factory=dict)
    published: list[PublishedStep] = field(default_factory=list)
    live: dict[int, Writer] = field(default_factory=dict)
    others: dict[str, Writer] = field(default_factory=dict)
    queued: dict[int, Writer] = field(default_factory=dict)
    carried: dict[int, int] = field(default_factory=dict)
    newest: dict[int, str] = field(default_factory=dict)
    after_a_break: set[int] = field(default_factory=set)
    turn_over: set[int] = field(default_factory=set)
    lockstep: set[int] = field(default_factory=set)
    waiting_since: float | None = None
    key: str = ""
    forwards: int = 0
    closing: str | None = None
    tip_lock: Any = None
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
        return not self.live and not self.others and not self.queued

    @property
    def together(self) -> bool:
        """Has every worker in lockstep a step that is live?"""
        return self.lockstep <= self.live.keys()

    def writers(self) -> list[Writer]:
        return [*self.live.values(), *self.others.values(), *self.queued.values()]

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

    def queue(self, writer: Writer) -> None:
        """Let a step wait for its worker's live one."""
        if writer.worker in self.queued:
            raise ValueError(
                f"worker {writer.worker} of team {self.name} has a queued step already"
            )
        self.queued[writer.worker] = writer

    def remove(self, writer: Writer) -> None:
        for place in (self.live, self.queued):
            if place.get(writer.worker) is writer:
                del place[writer.worker]
        self.others.pop(writer.rid, None)

    def leave_off(
        self, worker: int, carried: int | None, *, at_break: bool, turn_over: bool
    ) -> None:
        """A step of the worker's has been published: note where its next one goes on."""
        for workers, belongs in ((self.after_a_break, at_break), (self.turn_over, turn_over)):
            workers.discard(worker)
            if belongs:
                workers.add(worker)
        self.carried.pop(worker, None)
        if carried is not None:
            self.carried[worker] = carried

    def part_segment(self, kind: Kind) -> Segment:
        part = self.parts.get(kind)
        return part.segment if part else Segment((self.name, kind), EMPTY_SLOTS, 0)


@dataclass(frozen=True)
class TeamState:
    """The ``ViewState`` of one team in one forward.

    written: the KV slots of every live request, by rid, tokens of this forward included.
    """

    team: Team
    written: Mapping[str, torch.Tensor]

    @property
    def prompt(self) -> Segment:
        return self.team.part_segment(Kind.PROMPT)

    @property
    def header_others(self) -> Segment:
        return self.team.part_segment(Kind.HEADER_OTHERS)

    @property
    def header_own(self) -> Segment:
        return self.team.part_segment(Kind.HEADER_OWN)

    @property
    def published(self) -> list[PublishedStep]:
        return self.team.published

    @property
    def workers(self) -> int:
        return self.team.workers

    def live(self, worker: int) -> Segment:
        writer = self.team.live.get(worker)
        if writer is None or writer.doomed:
            return Segment((self.team.name, "none", worker), EMPTY_SLOTS, 0)
        return self.own(writer)

    def own(self, writer: Writer) -> Segment:
        """A writer's own tokens. Its row starts with them, so they sit at position 0."""
        return Segment(writer.rid, self.written.get(writer.rid, EMPTY_SLOTS), 0)

    def history(self, *workers: int | None) -> Run:
        return self.team.history(*workers)

    def view(self, writer: Writer) -> tuple[Part, ...]:
        """The writer's whole view: what its layout says, then its own tokens."""
        if writer.worker is not None:
            before = self.team.layout(self, writer.worker)
        elif writer.kind is Kind.READER:
            before = reader_view(self)
        else:
            before = outside_view(self)
        return (*before, self.own(writer))
