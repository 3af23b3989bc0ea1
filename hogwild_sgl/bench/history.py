"""Published steps as they were stored, or rotated once when they are published?

    python -m bench.history [--steps 500] [--tokens 16] [--rounds 15]

Both are exact in real numbers. As stored, every step of the history has a rotation of its
own for each reader (one delta per step); moved, the history is one segment, and each key has
been rounded twice. Prints, per type of the KV cache, the error of attention over such a
history against float64, and the time of attention and of the plan; the ways take turns.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch

from runtime_patch.attention.kernel import choose
from runtime_patch.attention.plan import build_plan
from runtime_patch.attention.rope import Rope, rotate
from runtime_patch.attention.views import Part, Run, Segment, View

HEADS, KV_HEADS, DIM, PROMPT, WORKERS = 9, 3, 64, 256, 4
THETA = 100_000.0  # of the demo model


@dataclass(frozen=True)
class Way:
    """plan and tensors of one way to keep the history."""

    views: list[View]
    q: torch.Tensor
    k: torch.Tensor
    v: torch.Tensor


def rope() -> Rope:
    half = DIM // 2
    return Rope(THETA ** (-torch.arange(half, dtype=torch.float64) / half))


def turned(x: torch.Tensor, positions: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """``x [n, heads, dim]`` rotated to ``positions [n]``, in ``dtype``."""
    angle = positions.to(torch.float64)[:, None] * rope().inv_freq
    return rotate(x.to(dtype), angle.cos().to(dtype), angle.sin().to(dtype), neox=True)


class History:
    """A prompt and published steps, each computed at positions of its own from 0."""

    def __init__(self, steps: int, tokens: int, dtype: torch.dtype) -> None:
        torch.manual_seed(0)
        self.dtype, self.length = dtype, PROMPT + steps * tokens
        # In float64 what a model in this type would have before it rotates.
        self.k = torch.randn(self.length, KV_HEADS, DIM).to(dtype).double()
        self.v = torch.randn(self.length, KV_HEADS, DIM).to(dtype)
        self.q = torch.randn(WORKERS, HEADS, DIM).to(dtype).double()
        own = torch.arange(tokens).repeat(steps)
        self.stored_at = torch.cat([torch.arange(PROMPT), own])
        self.parts = [PROMPT, *[tokens] * steps]

    def exact(self) -> torch.Tensor:
        """Attention of the workers' newest tokens, each the last of the history, in float64."""
        last = torch.full((WORKERS,), self.length - 1)
        q = turned(self.q, last, torch.float64)
        k = turned(self.k, torch.arange(self.length), torch.float64)
        grouped = q.unflatten(1, (KV_HEADS, HEADS // KV_HEADS))
        weight = torch.einsum("rkgd,jkd->rkgj", grouped, k * DIM**-0.5).softmax(-1)
        return torch.einsum("rkgj,jkd->rkgd", weight, self.v.double()).flatten(1, 2)

    def as_stored(self) -> Way:
        keys = turned(self.k, self.stored_at, torch.float32).to(self.dtype)
        starts = torch.tensor([0, *self.parts]).cumsum(0)[:-1].tolist()
        segments = [
            Segment(number, torch.arange(start, start + size), 0)
            for number, (start, size) in enumerate(zip(starts, self.parts, strict=True))
        ]
        return self._way((Run(tuple(segments[:-1])), segments[-1]), keys, at=self.parts[-1] - 1)

    def moved(self) -> Way:
        stored = turned(self.k, self.stored_at, torch.float32).to(self.dtype)
        further = torch.arange(self.length) - self.stored_at
        keys = turned(stored, further, torch.float32).to(self.dtype)
        return self._way((Segment(0, torch.arange(self.length), 0),), keys, at=self.length - 1)

    def _way(self, parts: tuple[Part, ...], keys: torch.Tensor, at: int) -> Way:
        # The newest key belongs to all of them here, so that every view is the history.
        q = turned(self.q, torch.full((WORKERS,), at), torch.float32).to(self.dtype)
        return Way([View(1, at, parts)] * WORKERS, q, keys, self.v)


def errors(history: History, way: Way, kernel: str) -> tuple[float, float]:
    """Root mean square and largest error over the root mean square of the exact result."""
    exact = history.exact()
    plan = build_plan(way.views)
    out = choose(kernel, "cpu")(plan, way.q, way.k, way.v, rope(), DIM**-0.5).double()
    size = exact.square().mean().sqrt()
    off = out - exact
    return float(off.square().mean().sqrt() / size), float(off.abs().max() / size)


def seconds(calls: dict[str, Callable[[], object]], rounds: int) -> dict[str, float]:
    """Median seconds of each call; they take turns."""
    times: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(rounds + 2):
        for name, call in calls.items():
            began = time.perf_counter()
            call()
            times[name].append(time.perf_counter() - began)
    return {name: statistics.median(some[2:]) for name, some in times.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=500, help="published steps")
    parser.add_argument("--tokens", type=int, default=16, help="tokens in each")
    parser.add_argument("--rounds", type=int, default=15)
    options = parser.parse_args()
    print(f"{options.steps} published steps of {options.tokens} tokens, {WORKERS} readers")
    print("cache     way        rms error  max error  attention ms  plan ms")
    for dtype in (torch.bfloat16, torch.float16, torch.float32):
        history = History(options.steps, options.tokens, dtype)
        ways = {"as stored": history.as_stored(), "moved": history.moved()}
        kernel, calls = choose("cpp", "cpu"), {}
        for name, way in ways.items():
            plan = build_plan(way.views)
            tensors = (way.q, way.k, way.v, rope(), DIM**-0.5)
            calls[name] = partial(kernel, plan, *tensors)
            calls[f"{name} plan"] = partial(build_plan, way.views)
        times = seconds(calls, options.rounds)
        for name, way in ways.items():
            rms, largest = errors(history, way, "cpp")
            attention, plan = (1000 * times[key] for key in (name, f"{name} plan"))
            head = f"{str(dtype).removeprefix('torch.'):9} {name:9}"
            print(f"{head}  {rms:9.2e}  {largest:9.2e}  {attention:12.2f}  {plan:7.2f}")


if __name__ == "__main__":
    main()
