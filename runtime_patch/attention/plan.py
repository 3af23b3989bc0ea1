"""The attention plan: which query rows read which KV segments, segment-major.

Source: section 3 of the paper (one stored cache, a rotated query per block). A plan
is built once per forward and used by every layer and every kernel. Nothing in this
package below ``backend.py`` imports SGLang.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from itertools import chain
from operator import attrgetter
from typing import TypeVar

import numpy as np
import torch

from runtime_patch.attention.rope import Rope

T = TypeVar("T")

_key, _length, _base = map(attrgetter, ("key", "length", "base"))


@dataclass(frozen=True)
class Segment:
    """KV slots that are contiguous in some view.

    key: identity within one forward; segments with equal keys are the same segment.
    slots: int64 ``[length]``, slot of each key in the KV pool.
    base: RoPE position at which the first key was stored; key j sits at base + j.
    length: number of keys.
    """

    key: Hashable
    slots: torch.Tensor
    base: int
    length: int = field(init=False, compare=False)

    def __post_init__(self) -> None:
        if self.slots.ndim != 1 or self.slots.dtype != torch.int64:
            raise ValueError("a segment's slots are a one-dimensional int64 tensor")
        if self.base < 0:
            raise ValueError(f"a segment's base is not negative, got {self.base}")
        # A plan asks for it 800 times a forward; asking the tensor is ten times slower.
        object.__setattr__(self, "length", self.slots.shape[0])

    def __len__(self) -> int:
        return self.length


@dataclass(frozen=True)
class View:
    """What consecutive query rows of one request attend to.

    The rows are the last ``rows`` keys of the last segment: row i sees the whole
    view but the ``rows - 1 - i`` keys behind it.

    rows: query rows (tokens) of this request in the forward.
    position: RoPE position at which the model rotates the first row.
    segments: the view, in order; empty segments are allowed before the last.
    """

    rows: int
    position: int
    segments: tuple[Segment, ...]

    def __post_init__(self) -> None:
        if not self.segments:
            raise ValueError("a view has at least one segment, the rows' own")
        if not 1 <= self.rows <= len(self.segments[-1]):
            raise ValueError(
                f"{self.rows} rows, but the last segment has {len(self.segments[-1])} keys"
            )

    def __len__(self) -> int:
        return sum(map(_length, self.segments))


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
    # One entry per view and segment in it: 800 of them for 4 workers and 200 steps. What goes
    # over them is mapped, not written as a loop; everything behind is vectorised.
    filled = [list(filter(_length, view.segments)) for view in views]
    entries = list(chain.from_iterable(filled))
    keys = list(map(_key, entries))
    number = {key: at for at, key in enumerate(dict.fromkeys(keys))}
    segment_of, length, base = (
        np.fromiter(values, np.int64, len(entries))
        for values in (map(number.__getitem__, keys), map(_length, entries), map(_base, entries))
    )
    some = np.empty(len(number), dtype=np.int64)
    some[segment_of] = np.arange(len(entries))
    for name, values in (("length", length), ("base", base)):
        wrong = np.flatnonzero(values[some][segment_of] != values)
        if len(wrong):
            raise ValueError(f"segment {entries[wrong[0]].key!r} has two {name}s in one forward")

    rows = np.array([view.rows for view in views])
    position = np.array([view.position for view in views])
    held = np.array([len(part) for part in filled])
    view_of = np.repeat(np.arange(len(views)), held)
    last = np.cumsum(held) - 1
    ends = np.cumsum(length)
    view_start = np.concatenate(([0], ends[last][:-1]))
    start = ends - length - view_start[view_of]
    row_index = ends[last] - view_start - rows
    delta = (row_index[view_of] - start) - (position[view_of] - base)
    own = np.zeros(len(entries), dtype=np.int64)
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
        torch.cat([entries[i].slots for i in some]),
        _starts(length[some]),
        _starts(np.bincount(reads[0])),
        *torch.from_numpy(reads[1:]).unbind(),
    )


def _starts(lengths: np.ndarray) -> torch.Tensor:
    return torch.from_numpy(np.concatenate(([0], np.cumsum(lengths))))
