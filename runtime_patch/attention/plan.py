"""The attention plan: which query rows read which KV segments, segment-major.

Source: section 3 of the paper (one stored cache, a rotated query per block). A plan
is built once per forward and used by every layer and every kernel. Nothing in this
package below ``backend.py`` imports SGLang.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import TypeVar

import numpy as np
import torch

from runtime_patch.attention.rope import Rope
from runtime_patch.attention.views import Part, Segment, View

T = TypeVar("T")


@dataclass(frozen=True)
class Plan:
    """Segment-major description of one forward's attention.

    With S distinct segments, K keys and R reads (a read is one row looking at one segment):

    num_rows: query rows of the batch.
    slots: int64 ``[K]``, the slots of all segments, one segment after another.
    segment_start: int64 ``[S + 1]``; segment s owns the slots
        ``[segment_start[s], segment_start[s + 1])``.
    read_start: int64 ``[S + 1]``; segment s has the reads ``[read_start[s], read_start[s + 1])``.
    read_row: int64 ``[R]``, the query row.
    read_delta: int64 ``[R]``, positions to rotate the stored query further by.
    read_limit: int64 ``[R]``, how many of the segment's first keys the row sees, at least 1.

    Every row has at least one read. Reads of a segment are in ascending row order; a row
    has two of them when its view holds the segment twice.

    ``build_plan`` leaves all but ``slots`` on the CPU, ``to`` puts everything on one
    device; ``host`` is then the plan it came from, for planning without a device sync.
    """

    num_rows: int
    slots: torch.Tensor
    segment_start: torch.Tensor
    read_start: torch.Tensor
    read_row: torch.Tensor
    read_delta: torch.Tensor
    read_limit: torch.Tensor
    _host: Plan | None = field(default=None, repr=False, compare=False)
    _cache: dict = field(default_factory=dict, repr=False, compare=False)

    @property
    def num_segments(self) -> int:
        return self.segment_start.shape[0] - 1

    @property
    def host(self) -> Plan:
        return self._host or self

    def cached(self, key: Hashable, make: Callable[[], T]) -> T:
        """What ``make`` returned the first time: for what a kernel derives from the plan."""
        if key not in self._cache:
            self._cache[key] = make()
        return self._cache[key]

    def tables(self, rope: Rope) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """cos and sin, float32 ``[U, rotary_dim / 2]``, of the U distinct deltas, and
        each read's row in them, int64 ``[R]``. Computed once and kept for all layers."""
        return self.cached(rope.key, lambda: self._tables(rope))

    def _tables(self, rope: Rope) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        deltas, index = np.unique(self.host.read_delta.numpy(), return_inverse=True)
        device = self.read_delta.device
        cos, sin = rope.table(torch.from_numpy(deltas))
        return cos.to(device), sin.to(device), torch.from_numpy(index.reshape(-1)).to(device)

    def to(self, device: torch.device | str) -> Plan:
        """All tensors on ``device``; the small ones travel together."""
        names = ("segment_start", "read_start", "read_row", "read_delta", "read_limit")
        small = [getattr(self, name) for name in names]
        device = torch.empty(0, device=device).device
        if all(tensor.device == device for tensor in (self.slots, *small)):
            return self
        moved = torch.cat(small).to(device, non_blocking=True).split([len(t) for t in small])
        slots = self.slots.to(device, non_blocking=True)
        return Plan(self.num_rows, slots, *moved, _host=self.host)


def build_plan(views: Sequence[View]) -> Plan:
    """Invert the views of a batch (in row order) into a segment-major plan.

    delta of a read is (P - s) - (p - base) with P the row's index in its view, s the
    segment's start in it, p the row's stored position: see docs/architecture.md.

    Raises ValueError when segments with one key differ in length or base.
    """
    segments = _Segments()
    parts = [[segments.entries(part) for part in view.parts if part.length] for view in views]
    # One entry per view and segment in it: 800 of them for 4 workers and 200 steps, so all
    # from here on is vectorised.
    segment_of, length, base = (
        np.concatenate(columns) for columns in zip(*chain.from_iterable(parts), strict=True)
    )
    some = segments.same(segment_of, length=length, base=base)

    rows = np.array([view.rows for view in views])
    position = np.array([view.position for view in views])
    held = np.array([sum(len(numbers) for numbers, _, _ in part) for part in parts])
    view_of = np.repeat(np.arange(len(views)), held)
    last = np.cumsum(held) - 1
    ends = np.cumsum(length)
    view_start = np.concatenate(([0], ends[last][:-1]))
    start = ends - length - view_start[view_of]
    row_index = ends[last] - view_start - rows
    delta = (row_index[view_of] - start) - (position[view_of] - base)
    own = np.zeros(len(length), dtype=np.int64)
    own[last] = 1
    count, first_row = rows[view_of], (np.cumsum(rows) - rows)[view_of]
    limit = np.where(own, length - count + 1, length)

    order = np.argsort(segment_of, kind="stable")
    count = count[order]
    entry = np.repeat(order, count)
    inside = np.arange(len(entry)) - np.repeat(np.cumsum(count) - count, count)
    row, limit = first_row[entry] + inside, limit[entry] + own[entry] * inside
    reads = np.stack((segment_of[entry], row, delta[entry], limit))
    if np.any((np.diff(reads[0]) == 0) & (np.diff(reads[1]) < 0)):
        reads = reads[:, np.lexsort((reads[1], reads[0]))]
    return Plan(
        int(rows.sum()),
        torch.cat(segments.slots),
        _starts(length[some]),
        _starts(np.bincount(reads[0])),
        *torch.from_numpy(reads[1:]).unbind(),
    )


class _Segments:
    """The distinct segments of a forward, numbered as they come.

    slots: of all segments, in the order of their numbers.
    """

    def __init__(self) -> None:
        self.slots: list[torch.Tensor] = []
        self._number: dict[Hashable, int] = {}
        self._runs: dict[int, tuple[np.ndarray, np.ndarray, np.ndarray]] = {}

    def entries(self, part: Part) -> tuple[Sequence[int], Sequence[int], Sequence[int]]:
        """Numbers, lengths and bases of the part's segments."""
        if isinstance(part, Segment):
            return [self._number_of(part)], [part.length], [part.base]
        if id(part) not in self._runs:
            if self._number.keys().isdisjoint(part.keys):
                numbers = np.arange(len(part.keys)) + len(self._number)
                self._number.update(zip(part.keys, numbers.tolist(), strict=True))
                self.slots.append(part.slots)
            else:
                numbers = np.array([self._number_of(segment) for segment in part.segments])
            self._runs[id(part)] = numbers, part.lengths, part.bases
        return self._runs[id(part)]

    def _number_of(self, segment: Segment) -> int:
        if segment.key not in self._number:
            self._number[segment.key] = len(self._number)
            self.slots.append(segment.slots)
        return self._number[segment.key]

    def same(self, segment_of: np.ndarray, **values: np.ndarray) -> np.ndarray:
        """An entry of each segment. ValueError when two entries of one differ in a value."""
        some = np.empty(len(self._number), dtype=np.int64)
        some[segment_of] = np.arange(len(segment_of))
        for name, value in values.items():
            wrong = np.flatnonzero(value[some][segment_of] != value)
            if len(wrong):
                key = list(self._number)[segment_of[wrong[0]]]
                raise ValueError(f"segment {key!r} has two {name}s in one forward")
        return some


def _starts(lengths: np.ndarray) -> torch.Tensor:
    return torch.from_numpy(np.concatenate(([0], np.cumsum(lengths))))
