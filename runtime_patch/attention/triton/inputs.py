"""What the Triton kernels read beside q, k and v, in device memory."""

from __future__ import annotations

from dataclasses import astuple, dataclass, fields

import numpy as np
import torch

from runtime_patch.attention.plan import Plan
from runtime_patch.attention.rope import Rope
from runtime_patch.attention.tiling import Merge, Work, merge_order, starts


@dataclass(frozen=True)
class Sizes:
    """Room for a forward: query rows, keys, reads, items, pieces, partial results."""

    rows: int
    keys: int
    reads: int
    items: int
    pieces: int
    partials: int

    def __post_init__(self) -> None:
        for field in fields(self):
            if getattr(self, field.name) < 1:
                raise ValueError(f"{field.name} is at least 1, got {getattr(self, field.name)}")

    @staticmethod
    def of(plan: Plan, work: Work) -> Sizes:
        return Sizes(
            rows=plan.num_rows,
            keys=plan.slots.shape[0],
            reads=plan.read_row.shape[0],
            items=work.items,
            pieces=len(work.piece_slot),
            partials=len(work.partial_row),
        )

    def holds(self, other: Sizes) -> bool:
        return all(a >= b for a, b in zip(astuple(self), astuple(other), strict=True))


class Inputs:
    """The plan and its work on a device, refillable in place.

    slots: int64 ``[keys]``. cos, sin: float32 ``[reads, rotary_dim / 2]``, of the distinct
    deltas. Everything else is int32 in one tensor, hence one copy to the device per
    forward; ``self[name]`` is a view of it. ``partial_place [partials]`` is where a partial
    result goes: an index into the partial buffers, or -1 for a row's only one, which goes
    straight to the output. ``merge_start [rows + 1]`` delimits each row's partials there.
    """

    def __init__(self, sizes: Sizes, rope: Rope, device: torch.device) -> None:
        self.sizes = sizes
        lengths = {
            "item_piece": sizes.items + 1,
            "item_partial": sizes.items + 1,
            "piece_slot": sizes.pieces,
            "piece_key": sizes.pieces,
            "piece_keys": sizes.pieces,
            "piece_read": sizes.pieces,
            "read_row": sizes.reads,
            "read_limit": sizes.reads,
            "read_table": sizes.reads,
            "deltas": sizes.reads,
            "partial_place": sizes.partials,
            "merge_start": sizes.rows + 1,
        }
        # Triton compiles anew for a pointer that is not a multiple of 16 bytes.
        lengths = {name: -(-length // 4) * 4 for name, length in lengths.items()}
        self._packed = torch.empty(sum(lengths.values()), dtype=torch.int32, device=device)
        self._parts = dict(zip(lengths, self._packed.split(list(lengths.values())), strict=True))
        self.slots = torch.empty(sizes.keys, dtype=torch.int64, device=device)
        half = rope.inv_freq.shape[0]
        self.cos = torch.empty(sizes.reads, half, dtype=torch.float32, device=device)
        self.sin = torch.empty_like(self.cos)
        self._inv_freq = rope.inv_freq.to(device)
        self.placed = 0

    def __getitem__(self, name: str) -> torch.Tensor:
        return self._parts[name]

    def fill(self, plan: Plan, work: Work) -> None:
        """Raises ValueError when the plan does not fit; nothing is changed then."""
        needed = Sizes.of(plan, work)
        if not self.sizes.holds(needed):
            raise ValueError(f"the forward needs {needed}, the inputs hold {self.sizes}")
        deltas, table = np.unique(plan.host.read_delta.numpy(), return_inverse=True)
        merge = merge_order(work, plan.num_rows)
        place, merge_start = places(work, merge)
        values = {
            "item_piece": work.item_piece,
            "item_partial": work.item_partial,
            "piece_slot": work.piece_slot,
            "piece_key": work.piece_key,
            "piece_keys": work.piece_keys,
            "piece_read": work.piece_read,
            "read_row": plan.host.read_row.numpy(),
            "read_limit": plan.host.read_limit.numpy(),
            "read_table": table.reshape(-1),
            "deltas": deltas,
            "partial_place": place,
            "merge_start": merge_start,
        }
        # Repeating the last value ends every list there: items without reads, rows without
        # partial results. What lies behind in the other arrays is then never looked at.
        packed = np.empty(self._packed.shape[0], dtype=np.int32)
        at = 0
        for name, part in self._parts.items():
            value = values[name]
            packed[at : at + len(value)] = value
            packed[at + len(value) : at + len(part)] = value[-1]
            at += len(part)
        self.placed = int(merge_start[-1])
        source = torch.from_numpy(packed)
        if self._packed.is_cuda:
            source = source.pin_memory()
        self._packed.copy_(source, non_blocking=True)
        self.slots[: needed.keys].copy_(plan.slots, non_blocking=True)
        # float64 on the device: exact at any position, and no wait for the host's cosines
        angle = torch.outer(self["deltas"][: len(deltas)].double(), self._inv_freq)
        self.cos[: len(deltas)].copy_(angle.cos())
        self.sin[: len(deltas)].copy_(angle.sin())


def places(work: Work, merge: Merge) -> tuple[np.ndarray, np.ndarray]:
    """``partial_place`` and ``merge_start`` of Inputs: rows with several partial results
    have them side by side, in row order."""
    counts = np.diff(merge.start)
    start = starts(np.where(counts > 1, counts, 0))
    place = np.empty(len(merge.order), dtype=np.int64)
    rows = work.partial_row[merge.order]
    within = np.arange(len(rows)) - merge.start[rows]
    place[merge.order] = np.where(counts[rows] > 1, start[rows] + within, -1)
    return place, start
