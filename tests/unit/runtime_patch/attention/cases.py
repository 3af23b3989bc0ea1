"""Random attention cases, and a dense oracle that moves every key where the view has it."""

from __future__ import annotations

import random
from dataclasses import dataclass

import torch

from runtime_patch.attention.plan import build_plan
from runtime_patch.attention.rope import Rope
from runtime_patch.attention.views import Run, Segment, View

# Largest error against the oracle, for queries, keys and values of unit variance. Rounding
# the output alone takes 2^-9 = 2e-3 in bfloat16 and 2^-12 = 2.5e-4 in float16; the rest is
# for the softmax weights and the rotated query, which a kernel may round as well. float64 is
# held back by cos and sin, which are float32.
TOLERANCE = {
    torch.float64: 1e-6,
    torch.float32: 5e-6,
    torch.float16: 1e-3,
    torch.bfloat16: 8e-3,
}


@dataclass(frozen=True)
class Case:
    """One kernel call: the views of the batch, its tensors and how far they are rotated."""

    views: tuple[View, ...]
    q: torch.Tensor
    k: torch.Tensor
    v: torch.Tensor
    rope: Rope
    scale: float

    def run(self, kernel) -> torch.Tensor:
        plan = build_plan(self.views)
        return kernel(plan, self.q, self.k, self.v, self.rope, self.scale)

    def error(self, out: torch.Tensor) -> float:
        """Largest difference from the oracle, relative to its value where that exceeds 1."""
        exact = oracle(self)
        return ((out.double() - exact).abs() / exact.abs().clamp(min=1)).max().item()


def make_rope(dim: int, rotary_dim: int | None = None, neox: bool = True) -> Rope:
    half = (rotary_dim or dim) // 2
    return Rope(10000.0 ** (-torch.arange(half, dtype=torch.float64) / half), neox)


def make_case(
    views: list[View],
    *,
    slots: int,
    dtype: torch.dtype = torch.float32,
    heads: int = 4,
    kv_heads: int = 2,
    dim: int = 64,
    value_dim: int | None = None,
    rope: Rope | None = None,
    seed: int = 0,
) -> Case:
    """Random tensors of unit variance for ``views`` over a pool of ``slots`` slots."""
    draw = torch.Generator().manual_seed(seed)
    rows = sum(view.rows for view in views)

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=draw, dtype=torch.float64).to(dtype)

    return Case(
        tuple(views),
        normal(rows, heads, dim),
        normal(slots, kv_heads, dim),
        normal(slots, kv_heads, value_dim or dim),
        rope or make_rope(dim),
        dim**-0.5,
    )


class Pool:
    """Hands out random slots, each once."""

    def __init__(self, slots: int, draw: random.Random):
        self.slots = slots
        self._free = list(range(slots))
        draw.shuffle(self._free)

    def take(self, length: int) -> torch.Tensor:
        taken, self._free = self._free[:length], self._free[length:]
        assert len(taken) == length, "the test's pool is too small"
        return torch.tensor(taken, dtype=torch.int64)


def random_views(draw: random.Random, *, slots: int = 4096, longest: int = 150) -> list[View]:
    """Teams whose workers read one another's live steps, and ordinary requests between them."""
    pool, views = Pool(slots, draw), []
    for number in range(draw.randint(1, 3)):
        if draw.random() < 0.4:
            length = draw.randint(1, longest)
            rows = draw.choice([1, length, draw.randint(1, length)])
            own = Segment(("plain", number), pool.take(length), 0)
            views.append(View(rows, length - rows, (own,)))
        else:
            views += team_views(draw, pool, name=f"team {number}", longest=longest)
    draw.shuffle(views)
    return views


def team_views(
    draw: random.Random,
    pool: Pool,
    name: str,
    *,
    longest: int = 150,
    workers: int | None = None,
    published: int | None = None,
) -> list[View]:
    """A team in the combined layout, its rows somewhere in the middle of their steps."""

    def segment(kind, length: int) -> Segment:
        return Segment((name, kind), pool.take(length), draw.randint(0, 5000))

    workers = workers or draw.randint(2, 4)
    published = draw.randint(0, 6) if published is None else published
    history = [segment("prompt", draw.randint(1, longest))]
    history += [segment(i, draw.randint(1, longest // 3)) for i in range(published)]
    header = segment("header", draw.randint(1, 5))
    live = [segment(("live", w), draw.randint(1, longest // 3)) for w in range(workers)]
    run = Run(tuple(history))
    views = []
    for worker, own in enumerate(live):
        # All of the history in one run that other views share, or only some, or none of it.
        kept = draw.randint(0, len(history))
        before = draw.choice([(run,), (Run(tuple(history[:kept])), *history[kept:])])
        rows = draw.choice([1, 1, draw.randint(1, len(own))])
        others = [step for other, step in enumerate(live) if other != worker]
        empty = Segment((name, "empty"), torch.empty(0, dtype=torch.int64), 0)
        # The header stands twice in a view: one segment read twice by a row.
        parts = (*before, header, *others, empty, header, own)
        views.append(View(rows, own.base + len(own) - rows, parts))
    return views


def oracle(case: Case) -> torch.Tensor:
    """float64 ``[T, H, Dv]``: keys and queries turned to their index in the view, then softmax."""
    group = case.q.shape[1] // case.k.shape[1]
    outputs, row = [], 0
    for view in case.views:
        slots = torch.cat([segment.slots for segment in view.segments])
        stored = torch.cat([torch.arange(len(s)) + s.base for s in view.segments])
        index = torch.arange(len(slots))
        keys = turn(case.k[slots].double(), index - stored, case.rope)
        values = case.v[slots].double()
        for i in range(view.rows):
            at = len(slots) - view.rows + i
            moved = torch.tensor([at - (view.position + i)])
            query = turn(case.q[row : row + 1].double(), moved, case.rope)[0]
            query = query.unflatten(0, (-1, group))
            scores = torch.einsum("kgd,jkd->kgj", query, keys[: at + 1]) * case.scale
            out = torch.einsum("kgj,jkd->kgd", scores.softmax(-1), values[: at + 1])
            outputs.append(out.flatten(0, 1))
            row += 1
    return torch.stack(outputs)


def turn(x: torch.Tensor, by: torch.Tensor, rope: Rope) -> torch.Tensor:
    """Rotate float64 ``x [n, heads, dim]`` by ``by [n]`` positions, as complex numbers."""
    pairs = torch.polar(torch.ones(()).double(), by[:, None, None] * rope.inv_freq)
    half = rope.inv_freq.shape[0]
    out = x.clone()
    if rope.neox:
        first, second = slice(0, half), slice(half, 2 * half)
    else:
        first, second = slice(0, 2 * half, 2), slice(1, 2 * half, 2)
    turned = torch.complex(x[..., first], x[..., second]) * pairs
    out[..., first], out[..., second] = turned.real, turned.imag
    return out
