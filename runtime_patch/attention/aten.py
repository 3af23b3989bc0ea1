"""The plan on PyTorch's own CPU flash attention: the kernel that needs no compiler."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

import torch
from torch.nn.functional import pad

from runtime_patch.attention.kernel import Kernel, check_tensors
from runtime_patch.attention.merge import Merge
from runtime_patch.attention.plan import Plan
from runtime_patch.attention.rope import Rope, rotate
from runtime_patch.errors import KernelUnavailable

# Segments of up to so many keys and reads are padded and done together; larger ones are worth
# a call each, and would take much memory together.
SHORT, FEW = 256, 32

flash = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu


@dataclass(frozen=True)
class Run:
    """Consecutive reads of one segment that need no mask.

    causal: False, every read sees the keys; True, read i sees the first i + 1 of them.
    """

    reads: slice
    keys: slice
    causal: bool
    turned: bool


@dataclass(frozen=True)
class Single:
    """One segment, gathered once for all its runs."""

    slots: torch.Tensor
    runs: tuple[Run, ...]


@dataclass(frozen=True)
class Padded:
    """Short segments with as many reads each, every read seeing its whole segment.

    slots ``[B, L]`` padded with any slot, reads ``[B * M]``, mask ``[B, 1, 1, L]``.
    """

    slots: torch.Tensor
    reads: torch.Tensor
    mask: torch.Tensor


class Aten:
    """Gathers each segment once and folds the query heads of a group into rows."""

    name = "aten"

    def __call__(
        self,
        plan: Plan,
        q: torch.Tensor,
        k: torch.Tensor,
        v: torch.Tensor,
        rope: Rope,
        scale: float,
    ) -> torch.Tensor:
        check_tensors(plan, q, k, v, rope)
        tables = plan.tables(rope)
        merge = Merge(plan.num_rows, q)
        singles, padded = plan.cached("aten", lambda: schedule(plan))
        for work in singles:
            keys, values = k.index_select(0, work.slots), v.index_select(0, work.slots)
            for run in work.runs:
                rows = plan.read_row[run.reads]
                queries = q.index_select(0, rows)
                if run.turned:
                    queries = _turn(queries, run.reads, tables, rope)
                some = keys[run.keys], values[run.keys]
                attend = _causal if run.causal else _full
                merge.add(rows, *attend(queries, *some, scale))
        for work in padded:
            rows = plan.read_row[work.reads]
            queries = _turn(q.index_select(0, rows), work.reads, tables, rope)
            merge.add(rows, *_batched(queries, k[work.slots], v[work.slots], work.mask, scale))
        return merge.result()


def create(device: torch.device) -> Kernel:
    if device.type != "cpu":
        raise KernelUnavailable(f"the aten kernel runs on cpu, not on {device.type}")
    return Aten()


def schedule(plan: Plan) -> tuple[list[Single], list[Padded]]:
    """Cut the plan into calls that need no mask but padding. Once per plan."""
    starts, reads = plan.segment_start.tolist(), plan.read_start.tolist()
    limits, deltas = plan.read_limit.tolist(), plan.read_delta.tolist()
    singles: list[Single] = []
    buckets: dict[tuple[int, int], list[int]] = defaultdict(list)
    for s in range(plan.num_segments):
        length, first, end = starts[s + 1] - starts[s], reads[s], reads[s + 1]
        whole = min(limits[first:end]) == length
        if whole and length <= SHORT and end - first <= FEW:
            buckets[end - first, max(16, 1 << (length - 1).bit_length())].append(s)
        else:
            singles.append(_single(plan, s, starts, reads, limits, deltas))
    padded = []
    for segments in buckets.values():
        if len(segments) == 1:
            singles.append(_single(plan, segments[0], starts, reads, limits, deltas))
        else:
            padded.append(_padded(plan, segments, starts, reads))
    return singles, padded


def _single(plan: Plan, s: int, starts, reads, limits, deltas) -> Single:
    runs: list[Run] = []
    first, end = reads[s], reads[s + 1]
    while first < end:
        last = first + 1
        step = limits[last] - limits[first] if last < end else 0
        if step in (0, 1):
            while last < end and limits[last] - limits[last - 1] == step:
                last += 1
        some, turned = slice(first, last), any(deltas[first:last])
        if step == 1:
            seen = limits[first] - 1
            if seen:
                runs.append(Run(some, slice(0, seen), False, turned))
            runs.append(Run(some, slice(seen, seen + last - first), True, turned))
        else:
            runs.append(Run(some, slice(0, limits[first]), False, turned))
        first = last
    return Single(plan.slots[starts[s] : starts[s + 1]], tuple(runs))


def _padded(plan: Plan, segments: list[int], starts, reads) -> Padded:
    lengths = torch.tensor([starts[s + 1] - starts[s] for s in segments])
    number = torch.arange(int(lengths.max()))
    first = torch.tensor([starts[s] for s in segments])
    inside = number < lengths[:, None]
    slots = plan.slots[torch.where(inside, first[:, None] + number, first[:, None])]
    mask = torch.zeros(inside.shape).masked_fill_(~inside, -torch.inf)[:, None, None]
    which = torch.cat([torch.arange(reads[s], reads[s + 1]) for s in segments])
    return Padded(slots, which, mask)


def _turn(q: torch.Tensor, reads, tables, rope: Rope) -> torch.Tensor:
    cos, sin, index = tables
    at = index[reads]
    return rotate(q.float(), cos[at], sin[at], rope.neox).to(q.dtype)


def _full(q, k, v, scale: float):
    """q ``[n, H, D]`` against all of k, v ``[L, KH, D]``."""
    kv_heads = k.shape[1]
    folded = q.unflatten(1, (kv_heads, -1)).transpose(0, 1).flatten(1, 2)
    out, lse = _flash(folded[:, None], _heads(k), _heads(v), scale)
    out, lse = (
        t[:, 0].unflatten(1, (len(q), -1)).transpose(0, 1).flatten(1, 2) for t in (out, lse)
    )
    return out, lse


def _causal(q, k, v, scale: float):
    """Row i of q ``[n, H, D]`` against the first i + 1 of k, v ``[n, KH, D]``."""
    kv_heads, group = k.shape[1], q.shape[1] // k.shape[1]
    apart = q.unflatten(1, (kv_heads, group)).permute(1, 2, 0, 3)
    k, v = (_heads(t).expand(-1, group, -1, -1) for t in (k, v))
    out, lse = _flash(apart, k, v, scale, causal=True)
    return out.permute(2, 0, 1, 3).flatten(1, 2), lse.permute(2, 0, 1).flatten(1, 2)


def _batched(q, k, v, mask, scale: float):
    """q ``[B * M, H, D]`` against k, v ``[B, L, KH, D]`` under mask ``[B, 1, 1, L]``."""
    batch, kv_heads = k.shape[0], k.shape[2]
    apart = q.unflatten(1, (kv_heads, -1)).unflatten(0, (batch, -1))
    folded = apart.transpose(1, 2).flatten(2, 3)
    out, lse = _flash(folded, k.transpose(1, 2), v.transpose(1, 2), scale, mask)
    reads = apart.shape[1]
    out, lse = (
        t.unflatten(2, (reads, -1)).transpose(1, 2).flatten(0, 1).flatten(1, 2) for t in (out, lse)
    )
    return out, lse


def _heads(x: torch.Tensor) -> torch.Tensor:
    return x.transpose(0, 1)[:, None]


def _flash(q, k, v, scale: float, mask=None, causal: bool = False):
    """flash wants one dtype and one head size, so the smaller of D and Dv is padded."""
    dtype, dim, value_dim = torch.promote_types(q.dtype, k.dtype), q.shape[-1], v.shape[-1]
    q, k, v = q.to(dtype), k.to(dtype), v.to(dtype)
    if dim != value_dim:
        wide = max(dim, value_dim)
        q, k, v = (pad(t, (0, wide - t.shape[-1])) for t in (q, k, v))
    if mask is not None:
        mask = mask.to(dtype).expand(-1, -1, q.shape[2], -1)
    out, lse = flash(q, k, v, 0.0, causal, attn_mask=mask, scale=scale)
    return out[..., :value_dim], lse
