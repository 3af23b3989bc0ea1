"""The plan as a batch of FlashInfer requests."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from runtime_patch.attention.plan import Plan
from runtime_patch.attention.rope import Rope
from runtime_patch.attention.tiling import count_up, divide, make_tiles, merge_order, starts

# Reads per request. Only a prefill has more; its tiles then stop at their last visible key.
READS = 256


@dataclass(frozen=True)
class Requests:
    """N requests whose query rows, X in all, are a segment's readers.

    A long segment makes several requests, cut by keys: FlashInfer's own split would leave
    the long ones whole as soon as there are more requests than thread blocks.

    row_start, key_start: int32 ``[N + 1]`` on the host, each request's query rows and keys.
    slots: int32 ``[key_start[-1]]``, their pages of one key each.
    row: int32 ``[X]``, the batch row that each query row copies.
    table: int32 ``[X]``, its row in cos, sin (float32 ``[U, rotary_dim / 2]``).
    limit: int32 ``[X]``, how many of the request's first keys it sees, 0 for none.
    order: int32 ``[X]``, start: int32 ``[T + 1]``: the query rows of each batch row.
    """

    row_start: torch.Tensor
    key_start: torch.Tensor
    slots: torch.Tensor
    row: torch.Tensor
    table: torch.Tensor
    limit: torch.Tensor
    order: torch.Tensor
    start: torch.Tensor
    cos: torch.Tensor
    sin: torch.Tensor


def make_requests(
    plan: Plan, rope: Rope, kv_heads: int, processors: int, device: torch.device
) -> Requests:
    work = divide(
        plan, make_tiles(plan, READS), processors=processors, kv_heads=kv_heads, join=False
    )
    reads = np.diff(work.item_partial)
    read = np.repeat(work.piece_read, reads) + count_up(reads)
    limit = plan.host.read_limit.numpy()[read] - np.repeat(work.piece_key, reads)
    deltas, table = np.unique(plan.host.read_delta.numpy(), return_inverse=True)
    merge = merge_order(work, plan.num_rows)
    key_start = starts(work.piece_keys)
    lists = {
        "row": work.partial_row,
        "table": table.reshape(-1)[read],
        "limit": np.clip(limit, 0, np.repeat(work.piece_keys, reads)),
        "order": merge.order,
        "start": merge.start,
        "deltas": deltas,
    }
    # Decode segments are read whole, so their requests are the plan's slots as they lie.
    as_planned = np.array_equal(work.piece_slot, key_start[:-1])
    if not as_planned:
        lists["key"] = np.repeat(work.piece_slot, work.piece_keys) + count_up(work.piece_keys)
    source = torch.from_numpy(np.concatenate(list(lists.values())).astype(np.int32))
    if device.type == "cuda":
        source = source.pin_memory()
    packed = source.to(device, non_blocking=True).split([len(a) for a in lists.values()])
    parts = dict(zip(lists, packed, strict=True))
    # float64 on the device: exact at any position, and no wait for the host's cosines
    angle = torch.outer(parts.pop("deltas").double(), rope.inv_freq.to(device))
    slots = plan.slots.to(device)
    return Requests(
        row_start=torch.from_numpy(work.item_partial.astype(np.int32)),
        key_start=torch.from_numpy(key_start.astype(np.int32)),
        slots=(slots if as_planned else slots[parts.pop("key")]).int(),
        cos=angle.cos().float(),
        sin=angle.sin().float(),
        **parts,
    )
