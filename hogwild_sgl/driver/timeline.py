"""Puts what the driver is told into the order in which it happened.

Every worker's messages come over a connection of its own, so that Alice's publication at
forward 80 can arrive after Bob's at forward 81. Whatever depends on that order (which step a
redundancy check is put into, which step stops the run) must not depend on the arrival. So
the timeline keeps what it is told back until every worker has been heard up to that forward.
"""

from __future__ import annotations

import heapq
import math
from dataclasses import dataclass, field
from typing import Any

# What happens at the same forward happens in this order.
PUBLISHED, STARTED, LOST = range(3)


@dataclass(order=True, frozen=True)
class Happened:
    """kind: PUBLISHED, STARTED or LOST (a step that was to be written is not). data: more
    about it."""

    passes: int
    kind: int
    worker: int
    data: Any = field(default=None, compare=False)


@dataclass
class Heard:
    """What a worker's own messages have said so far.

    known: no step of the worker ends at this forward or before without having been heard of.
    steps: its published steps. start, tokens, text: of its live step.
    """

    known: float
    steps: int
    live: bool = False
    start: int = 0
    tokens: int = 0
    text: str = ""


class Timeline:
    """passes: the team's forwards at the beginning. steps: each worker's published ones."""

    def __init__(self, passes: int, steps: list[int]) -> None:
        self.clock = passes
        self.heard = [Heard(passes, count) for count in steps]
        self._waiting: list[Happened] = []
        self._at_once = -1.0

    def started(self, worker: int, passes: int) -> None:
        heard = self.heard[worker]
        heard.live, heard.start, heard.tokens, heard.text = True, passes, 0, ""
        self._know(worker, passes)
        heapq.heappush(self._waiting, Happened(passes, STARTED, worker))

    def progressed(self, worker: int, text: str, tokens: int) -> None:
        """One token is one forward. The last one heard may be the step's last."""
        heard = self.heard[worker]
        heard.text += text
        heard.tokens += tokens
        self._know(worker, heard.start + heard.tokens - 1)
        self.clock = max(self.clock, heard.start + heard.tokens)

    def published(self, worker: int, passes: int, data: Any, *, last: bool) -> None:
        """last: the worker writes no more."""
        heard = self.heard[worker]
        heard.live = False
        heard.steps += 1
        self._know(worker, passes)
        if last:
            heard.known = math.inf
        heapq.heappush(self._waiting, Happened(passes, PUBLISHED, worker, data))

    def dropped(self, worker: int, data: Any) -> None:
        """The live step is gone, which happens at no particular forward: what has been heard
        until now counts as having come before."""
        self.heard[worker].live = False
        self._at_once = self.clock
        heapq.heappush(self._waiting, Happened(self.clock, LOST, worker, data))

    def not_begun(self, worker: int, data: Any, *, last: bool) -> None:
        """A step was refused where the worker's last one ended. last: as in `published`."""
        heard = self.heard[worker]
        passes = self.clock if heard.known == math.inf else int(heard.known)
        if last:
            heard.known = math.inf
        heapq.heappush(self._waiting, Happened(passes, LOST, worker, data))

    def next(self) -> Happened | None:
        """The next thing that happened, if nothing can have happened before it."""
        if not self._waiting:
            return None
        known = min(heard.known for heard in self.heard)
        if self._waiting[0].passes > max(known, self._at_once):
            return None
        return heapq.heappop(self._waiting)

    def _know(self, worker: int, passes: int) -> None:
        heard = self.heard[worker]
        heard.known = max(heard.known, passes)
        self.clock = max(self.clock, passes)
