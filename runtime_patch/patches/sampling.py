"""Patch of the way a batch's sampling parameters are gathered."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from typing import Any

import torch

from runtime_patch.patches.base import Patch


class SeedPatch(Patch):
    """Gives every request a random stream of its own.

    Why: SGLang samples all rows of a batch from one global generator, so what a request
    draws depends on who else is in its batches; it honours ``sampling_seed`` only with
    --enable-deterministic-inference. With this, a request that names a seed draws the
    same numbers whatever else the server does; one that does not gets a random seed.
    Only SGLang's PyTorch sampler takes seeds, so only there."""

    target = "sglang.srt.sampling.sampling_batch_info.SamplingBatchInfo.from_schedule_batch"
    parameters = ("cls", "batch", "vocab_size")
    relies_on = ("sampling_seed=sampling_seed", "if enable_deterministic")

    def around(self, original: Callable, cls: type, batch: Any, vocab_size: int) -> Any:
        from sglang.srt.runtime_context import get_exec

        from runtime_patch.settings import hogwild_is_on

        info = original(cls, batch, vocab_size)
        seeded = info.sampling_seed is not None
        if seeded or not hogwild_is_on() or get_exec().kernel.sampling_backend != "pytorch":
            return info
        seeds = [_seed_of(req) for req in batch.reqs]
        info.sampling_seed = torch.tensor(seeds, dtype=torch.int64).to(info.temperatures.device)
        return info


def _seed_of(req: Any) -> int:
    """The request's seed; drawn once, so that it stays the same in every batch."""
    params = req.sampling_params
    if params.sampling_seed is None:
        params.sampling_seed = secrets.randbits(63)
    return params.sampling_seed
