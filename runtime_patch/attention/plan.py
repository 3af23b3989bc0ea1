"""The attention plan: which query rows read which KV segments, segment-major.

Source: section 3 of the paper (one stored cache, a rotated query per block). A plan
is built once per forward and used by every layer and every kernel. Nothing in this
package below ``backend.py`` imports SGLang.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field

import torch

from runtime_patch.attention.rope import Rope


@dataclass(frozen=True)
class Segment:
    """KV slots that are contiguous in some view.

    key: identity within one forward; segments with equal keys are the same segment.
    slots: int64 ``[length]``, slot of each key in the KV pool.
    base: RoPE position at which the first key was stored; key j sits at base + j.
    """

    key: Hashable
    slots: torch.Tensor
    base: int

    def __post_init__(self) -> None:
        if self.slots.ndim != 1 or self.slots.dtype != torch.int64:
            raise ValueError("a segment's slots are a one-dimensional int64 tensor")
        if self.base < 0:
            raise ValueError(f"a segment's base is not negative, got {self.base}")

    def __len__(self) -> int:
        return self.slots.shape[0]


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
        return sum(len(segment) for segment in self.segments)


@dataclass(frozen=True)
class Plan:
    """Segment-major description of one forward's attention, all tensors on one device.

    With S distinct segments, K keys and R reads (a read is one row looking at one segment):

    num_rows: query rows of the batch.
    slots: int64 ``[K]``, the slots of all segments, one segment after another.
    segment_start: int64 ``[S + 1]``; segment s owns ``slots[segment_start[s]:segment_start[s + 1]]``.
    read_start: int64 ``[S + 1]``; segment s has the reads ``[read_start[s], read_start[s + 1])``.
    read_row: int64 ``[R]``, the query row.
    read_delta: int64 ``[R]``, positions to rotate the stored query further by.
    read_limit: int64 ``[R]``, how many of the segment's first keys the row sees, at least 1.

    Every row has at least one read. Reads of a segment are in ascending row order.
    """

    num_rows: int
    slots: torch.Tensor
    segment_start: torch.Tensor
    read_start: torch.Tensor
    read_row: torch.Tensor
    read_delta: torch.Tensor
    read_limit: torch.Tensor
    _tables: dict = field(default_factory=dict, repr=False, compare=False)

    @property
    def num_segments(self) -> int:
        return self.segment_start.shape[0] - 1

    def tables(self, rope: Rope) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """cos and sin, float32 ``[U, rotary_dim / 2]``, of the U distinct deltas, and
        each read's row in them, int64 ``[R]``. Computed once and kept for all layers."""
        if rope.key not in self._tables:
            deltas, index = torch.unique(self.read_delta, return_inverse=True)
            self._tables[rope.key] = (*rope.table(deltas), index)
        return self._tables[rope.key]

    def to(self, device: torch.device | str) -> Plan:
        if self.slots.device == torch.device(device):
            return self
        names = ("slots", "segment_start", "read_start", "read_row", "read_delta", "read_limit")
        return Plan(self.num_rows, *(getattr(self, n).to(device, non_blocking=True) for n in names))


def build_plan(views: Sequence[View]) -> Plan:
    """Invert the views of a batch (in row order) into a segment-major plan.

    delta of a read is (P - s) - (p - base) with P the row's index in its view, s the
    segment's start in it, p the row's stored position: see docs/architecture.md.
    """
    segments: dict[Hashable, Segment] = {}
    reads: dict[Hashable, list[tuple[int, int, int]]] = {}
    first_row = 0
    for view in views:
        index = len(view) - view.rows
        start = 0
        for segment in view.segments[:-1]:
            if len(segment):
                seen = segments.setdefault(segment.key, segment)
                if len(seen) != len(segment):
                    raise ValueError(f"segment {segment.key!r} has two lengths in one forward")
                delta = (index - start) - (view.position - segment.base)
                reads.setdefault(segment.key, []).extend(
                    (first_row + i, delta, len(segment)) for i in range(view.rows)
                )
            start += len(segment)
        own = view.segments[-1]
        segments.setdefault(own.key, own)
        delta = (index - start) - (view.position - own.base)
        behind = len(own) - view.rows
        reads.setdefault(own.key, []).extend(
            (first_row + i, delta, behind + i + 1) for i in range(view.rows)
        )
        first_row += view.rows
    ordered = list(segments)
    for key in ordered:
        reads[key].sort()
    flat = torch.tensor([read for key in ordered for read in reads[key]], dtype=torch.int64)
    return Plan(
        num_rows=first_row,
        slots=torch.cat([segments[key].slots for key in ordered]),
        segment_start=_starts(len(segments[key]) for key in ordered),
        read_start=_starts(len(reads[key]) for key in ordered),
        read_row=flat[:, 0].contiguous(),
        read_delta=flat[:, 1].contiguous(),
        read_limit=flat[:, 2].contiguous(),
    )


def _starts(lengths) -> torch.Tensor:
    total, starts = 0, [0]
    for length in lengths:
        total += length
        starts.append(total)
    return torch.tensor(starts, dtype=torch.int64)
