"""Ragged plans and tensors to compare kernels on."""

from __future__ import annotations

import random
from dataclasses import dataclass

import torch

from runtime_patch.attention.plan import Plan, build_plan
from runtime_patch.attention.rope import Rope
from runtime_patch.attention.views import Segment, View


@dataclass(frozen=True)
class Shape:
    heads: int = 6
    kv_heads: int = 2
    dim: int = 32
    value_dim: int = 32
    rotary_dim: int = 32
    neox: bool = True
    dtype: torch.dtype = torch.float32

    def rope(self) -> Rope:
        half = self.rotary_dim // 2
        return Rope(10000.0 ** -(torch.arange(half, dtype=torch.float64) / half), self.neox)

    def tensors(self, rows: int, slots: int, seed: int = 0):
        """q, k, v; the cache's layers and heads lie apart, as in a real pool."""
        draw = torch.Generator().manual_seed(seed)
        q = torch.randn(rows, self.heads, self.dim, generator=draw)
        k = torch.randn(slots, self.kv_heads + 1, self.dim, generator=draw)
        v = torch.randn(slots, self.kv_heads + 1, self.value_dim, generator=draw)
        return q.to(self.dtype), k.to(self.dtype)[:, 1:], v.to(self.dtype)[:, 1:]


def random_plan(seed: int, rows: int = 7, segments: int = 6, longest: int = 90) -> Plan:
    """Segments of any length, each read by any rows, each read with its own delta (up to
    128k positions either way) and its own limit. 1000 slots."""
    draw = random.Random(seed)
    slots, segment_start, read_start = [], [0], [0]
    read_row, read_delta, read_limit = [], [], []
    for s in range(segments):
        length = draw.randint(1, longest)
        readers = sorted(draw.sample(range(rows), draw.randint(1, rows)))
        if s == 0:
            readers = list(range(rows))
        slots += draw.sample(range(1000), length)
        for row in readers:
            read_row.append(row)
            read_delta.append(draw.choice((0, draw.randint(-(2**17), 2**17))))
            read_limit.append(draw.choice((length, draw.randint(1, length))))
        segment_start.append(len(slots))
        read_start.append(len(read_row))
    columns = (slots, segment_start, read_start, read_row, read_delta, read_limit)
    return Plan(rows, *(torch.tensor(column, dtype=torch.int64) for column in columns))


def team_plan(
    seed: int,
    workers: int = 3,
    opening: int = 1,
    published: int = 5,
    prompt: int = 70,
    alone: int = 2,
) -> Plan:
    """A team in the combined layout, each worker with ``opening`` new tokens, beside
    ``alone`` ordinary requests, one of them a prefill. 1000 slots."""
    draw = random.Random(seed)
    free = draw.sample(range(1000), 1000)

    def segment(key, length: int, base: int) -> Segment:
        slots = torch.tensor([free.pop() for _ in range(length)], dtype=torch.int64)
        return Segment(key, slots, base)

    history = [segment("prompt", prompt, 0)]
    end = prompt
    for number in range(published):
        history.append(segment(("published", number), draw.randint(1, 40), end))
        end += draw.randint(10, 50)
    others, own = segment("others", 5, 300), segment("own", 6, 400)
    live = [segment(("live", w), opening + draw.randint(0, 9), end) for w in range(workers)]
    views = [
        View(
            opening,
            end + len(live[w]) - opening,
            (*history, others, *(live[x] for x in range(workers) if x != w), own, live[w]),
        )
        for w in range(workers)
    ]
    for number in range(alone):
        length, rows = draw.randint(30, 60), draw.choice((1, 25))
        views.append(View(rows, length - rows, (segment(("alone", number), length, 0),)))
    return build_plan(views)
