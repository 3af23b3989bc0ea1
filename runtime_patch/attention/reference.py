"""The plan in the plainest torch: what every other kernel is compared with."""

from __future__ import annotations

import torch

from runtime_patch.attention.kernel import Kernel, check_tensors
from runtime_patch.attention.merge import Merge
from runtime_patch.attention.plan import Plan
from runtime_patch.attention.rope import Rope, rotate

# Elements of one block of scores; a long prefill is done in blocks of reads.
SCORES = 1 << 24


class Reference:
    """Exact attention in float32 (float64 for float64 queries), on any device."""

    name = "reference"

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
        compute = torch.float64 if q.dtype == torch.float64 else torch.float32
        cos, sin, index = (t.to(compute) if t.is_floating_point() else t for t in plan.tables(rope))
        heads, kv_heads = q.shape[1], k.shape[1]
        merge = Merge(plan.num_rows, q)
        segments = plan.segment_start.tolist()
        reads = plan.read_start.tolist()
        for s in range(plan.num_segments):
            slots = plan.slots[segments[s] : segments[s + 1]]
            keys, values = k[slots].to(compute), v[slots].to(compute)
            number = torch.arange(len(slots), device=q.device)
            block = max(1, SCORES // (heads * len(slots)))
            for first in range(reads[s], reads[s + 1], block):
                some = slice(first, min(first + block, reads[s + 1]))
                rows = plan.read_row[some]
                at = index[some]
                turned = rotate(q[rows].to(compute), cos[at], sin[at], rope.neox)
                grouped = turned.unflatten(1, (kv_heads, heads // kv_heads))
                scores = torch.einsum("rkgd,jkd->rkgj", grouped, keys) * scale
                hidden = number >= plan.read_limit[some, None]
                scores.masked_fill_(hidden[:, None, None], -torch.inf)
                lse = scores.logsumexp(-1)
                out = torch.einsum("rkgj,jkd->rkgd", scores.softmax(-1), values)
                merge.add(rows, out.flatten(1, 2), lse.flatten(1, 2))
        return merge.result()


def create(device: torch.device) -> Kernel:
    return Reference()
