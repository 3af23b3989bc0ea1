"""Attention of one layer on the CPU: this project's kernels against PyTorch's.

    python bench/attention_cpu.py [--keys 4096] [--rounds 31] [--threads N]

Prints, per case, each way's median and best time, and by both how many times faster the C++
kernel is. The ways take turns within a round, and every call finds its layer's cache cold,
as in a model. On a machine that is busy with other things only the best times mean much.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch.nn.functional import scaled_dot_product_attention

from runtime_patch.attention.kernel import choose
from runtime_patch.attention.plan import build_plan
from runtime_patch.attention.rope import Rope
from runtime_patch.attention.views import Segment, View

CACHES = 1 << 29  # bytes of KV to cycle through, far beyond any processor's cache


@dataclass(frozen=True)
class Case:
    name: str
    views: list[View]
    slots: int
    heads: int = 9
    kv_heads: int = 3
    dim: int = 64


def team(keys: int, workers: int, steps: int, live: int = 32) -> list[View]:
    """Workers that decode one token each after a history of prompt and published steps."""
    pool = iter(torch.randperm(2 * keys).split(1))

    def segment(key, length: int) -> Segment:
        return Segment(key, torch.cat([next(pool) for _ in range(length)]), 0)

    published = [segment(step, keys // (2 * steps)) for step in range(steps)]
    prompt = keys - workers * live - sum(map(len, published))
    history = [segment("prompt", prompt), *published]
    steps_now = [segment(("live", worker), live) for worker in range(workers)]
    return [
        View(1, live - 1, (*history, *(s for s in steps_now if s is not own), own))
        for own in steps_now
    ]


def ordinary(keys: int, requests: int, rows: int = 1) -> list[View]:
    """Independent requests of ``keys`` tokens, of which the last ``rows`` are fed now."""
    slots = torch.randperm(2 * keys * requests)
    return [
        View(rows, keys - rows, (Segment(i, part.clone(), 0),))
        for i, part in enumerate(slots[: keys * requests].split(keys))
    ]


def per_request(views: list[View], scale: float) -> Callable:
    """What SGLang's torch_native backend does: gather a request's cache, then SDPA."""
    slots = [torch.cat([segment.slots for segment in view.segments]) for view in views]
    rows = [view.rows for view in views]

    def run(q, k, v):
        out = []
        for query, at in zip(q.split(rows), slots, strict=True):
            keys, values = (x.index_select(0, at).movedim(0, 1)[None] for x in (k, v))
            query = query.movedim(0, 1)[None]
            mask = None
            if 1 < query.shape[2] < len(at):
                mask = torch.ones(query.shape[2], len(at), dtype=torch.bool).tril(
                    len(at) - query.shape[2]
                )
            out.append(
                scaled_dot_product_attention(
                    query,
                    keys,
                    values,
                    attn_mask=mask,
                    is_causal=query.shape[2] == len(at) > 1,
                    scale=scale,
                    enable_gqa=True,
                )[0].movedim(0, 1)
            )
        return torch.cat(out)

    return run


def measure(case: Case, rounds: int, dtype: torch.dtype) -> dict[str, list[float]]:
    """Seconds per call of each way, in every round."""
    half = case.dim // 2
    rope = Rope(10000.0 ** (-torch.arange(half, dtype=torch.float64) / half))
    plan, scale = build_plan(case.views), case.dim**-0.5
    layer = 2 * case.slots * case.kv_heads * case.dim * dtype.itemsize
    caches = [
        torch.randn(2, case.slots, case.kv_heads, case.dim).to(dtype)
        for _ in range(max(2, CACHES // layer))
    ]
    q = torch.randn(plan.num_rows, case.heads, case.dim).to(dtype)
    ways: dict[str, Callable] = {"per request": per_request(case.views, scale)}
    for name in ("aten", "cpp"):
        kernel = choose(name, "cpu")
        ways[name] = lambda q, k, v, kernel=kernel: kernel(plan, q, k, v, rope, scale)
    times: dict[str, list[float]] = {name: [] for name in ways}
    turn = 0
    for _ in range(rounds + 2):
        for name, run in ways.items():
            cache = caches[turn % len(caches)]
            turn += 1
            began = time.perf_counter()
            run(q, *cache)
            times[name].append(time.perf_counter() - began)
    return {name: some[2:] for name, some in times.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--keys", type=int, default=4096)
    parser.add_argument("--rounds", type=int, default=31)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--dtype", default="bfloat16", choices=["bfloat16", "float16", "float32"])
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    torch.manual_seed(0)
    keys, dtype = options.keys, getattr(torch, options.dtype)
    cases = [
        Case(f"team of 4, {keys} keys", team(keys, 4, 1), 2 * keys),
        Case(f"team of 4, {keys} keys, 60 published steps", team(keys, 4, 60), 2 * keys),
        Case(f"1 ordinary request, {keys} keys", ordinary(keys, 1), 2 * keys),
        Case(f"8 ordinary requests, {keys} keys", ordinary(keys, 8), 16 * keys),
        Case("prefill of 2048", ordinary(2048, 1, 2048), 4096),
        Case("prefill of 512 after 2048 cached", ordinary(2560, 1, 512), 5120),
    ]
    for case in cases:
        times = measure(case, options.rounds, dtype)
        print(case.name)
        for name, some in times.items():
            line = f"  {name:12}"
            for title, pick in (("median", statistics.median), ("best", min)):
                ratio = pick(some) / pick(times["cpp"])
                line += f"  {title} {1e3 * pick(some):8.2f} ms {ratio:6.1f}x"
            print(line)


if __name__ == "__main__":
    main()
