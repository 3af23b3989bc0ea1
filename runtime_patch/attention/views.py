"""Views: what query rows attend to, as stored segments in an order."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Protocol

import numpy as np
import torch


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
        # A plan asks for it often; asking the tensor is ten times slower.
        object.__setattr__(self, "length", self.slots.shape[0])

    def __len__(self) -> int:
        return self.length


@dataclass(frozen=True, eq=False)
class Run:
    """Segments that stand one behind the other in many views, in forward after forward.

    A team's history is one. What a plan needs to know of its segments is worked out once, so
    that a forward does not cost more with each step that has been published.

    segments: with different keys; empty ones are left out.
    """

    segments: tuple[Segment, ...]
    length: int = field(init=False)

    def __post_init__(self) -> None:
        filled = tuple(segment for segment in self.segments if segment.length)
        object.__setattr__(self, "segments", filled)
        object.__setattr__(self, "length", sum(segment.length for segment in filled))
        if len(set(self.keys)) < len(filled):
            raise ValueError("the segments of a run have different keys")

    def __len__(self) -> int:
        return self.length

    @cached_property
    def keys(self) -> list[Hashable]:
        return [segment.key for segment in self.segments]

    @cached_property
    def lengths(self) -> np.ndarray:
        """int64 ``[len(segments)]``"""
        return np.array([segment.length for segment in self.segments], dtype=np.int64)

    @cached_property
    def bases(self) -> np.ndarray:
        """int64 ``[len(segments)]``"""
        return np.array([segment.base for segment in self.segments], dtype=np.int64)

    @cached_property
    def slots(self) -> torch.Tensor:
        """int64 ``[length]``, one segment after another."""
        return torch.cat([segment.slots for segment in self.segments])


Part = Segment | Run


@dataclass(frozen=True)
class View:
    """What consecutive query rows of one request attend to.

    The rows are the last ``rows`` keys of the last part: row i sees the whole view but the
    ``rows - 1 - i`` keys behind it.

    rows: query rows (tokens) of this request in the forward.
    position: RoPE position at which the model rotates the first row.
    parts: segments and runs of segments, in order; any but the last may be empty. The last is
        the rows' own segment.
    """

    rows: int
    position: int
    parts: tuple[Part, ...]

    def __post_init__(self) -> None:
        if not self.parts or not isinstance(self.parts[-1], Segment):
            raise ValueError("a view ends with a segment, the rows' own")
        if not 1 <= self.rows <= len(self.parts[-1]):
            raise ValueError(
                f"{self.rows} rows, but the last segment has {len(self.parts[-1])} keys"
            )

    @classmethod
    def of_request(cls, rid: str, rows: int, slots: torch.Tensor) -> View:
        """An ordinary request's view: its own tokens, the last ``rows`` of them new."""
        return cls(rows, len(slots) - rows, (Segment(rid, slots, 0),))

    def __len__(self) -> int:
        return sum(part.length for part in self.parts)

    @property
    def segments(self) -> list[Segment]:
        """The segments of all parts, in order."""
        return [
            segment
            for part in self.parts
            for segment in (part.segments if isinstance(part, Run) else (part,))
        ]


class ViewSource(Protocol):
    """Whoever knows what the requests of a forward attend to."""

    def views(
        self,
        rids: list[str],
        rows: list[int],
        written: dict[str, torch.Tensor],
        token_of_row: torch.Tensor,
    ) -> list[View]:
        """The views of one forward's requests, in batch order.

        rids, rows: the requests and how many query rows each has.
        written: KV slots of each request in the batch, new tokens included.
        token_of_row: the tokens fed, for the record.
        """


class OrdinaryViews:
    """Every request attends to its own tokens, as where there are no teams."""

    def views(
        self,
        rids: list[str],
        rows: list[int],
        written: dict[str, torch.Tensor],
        token_of_row: torch.Tensor,
    ) -> list[View]:
        return [View.of_request(rid, n, written[rid]) for rid, n in zip(rids, rows, strict=True)]
