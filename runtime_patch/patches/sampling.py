"""Patches that give every request a random stream of its own."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from hashlib import blake2b
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

        from runtime_patch.server_args import hogwild_is_on

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
    return params.sampling_seed % 2**63


class DrawPatch(Patch):
    """Draws with seeds on a machine without a GPU.

    Why: there SGLang takes its hash from sgl_kernel, which is built for GPUs only, and the
    scheduler would end."""

    target = "sglang.srt.layers.sampler.multinomial_with_seed"
    parameters = ("logprobs", "seed", "positions")
    relies_on = ("murmur_hash32(seed, positions, col_indices)",)

    def around(
        self,
        original: Callable,
        logprobs: torch.Tensor,
        seed: torch.Tensor,
        positions: torch.Tensor,
    ) -> torch.Tensor:
        if logprobs.device.type != "cpu":
            return original(logprobs, seed, positions)
        return draw(logprobs, seed, positions)


def draw(logprobs: torch.Tensor, seed: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
    """One sample per row, int64 ``[n, 1]``, that its seed and position alone decide.

    logprobs ``[n, m]``, which need not be normalised; seed and positions int64 ``[n]``."""
    wait = torch.empty(logprobs.shape, dtype=torch.float32)
    for row, which in zip(wait, zip(seed.tolist(), positions.tolist(), strict=True), strict=True):
        digest = blake2b(repr(which).encode(), digest_size=8).digest()
        row.exponential_(generator=torch.Generator().manual_seed(int.from_bytes(digest)))
    wait.clamp_min_(torch.finfo(wait.dtype).tiny)
    # The smallest of exponential waiting times with the rates p comes first with p.
    return (logprobs - wait.log()).argmax(dim=-1, keepdim=True)


class FilterPatch(Patch):
    """Filters by top-k, top-p and min-p in a batch with seeds, and draws by token.

    Why: SGLang draws by the place of a token among the sorted ones, and only in a batch in
    which some request filters, so that a request's draws would depend on what the others in
    its batch ask for. And it refuses min-p in a batch with seeds by an assertion that ends the
    scheduler; what is left does not depend on the order of the filters: tokens under the
    threshold are the last ones that top-k and top-p look at, and the likeliest one is never
    dropped."""

    target = "sglang.srt.layers.sampler.top_k_top_p_min_p_sampling_from_probs_torch"
    parameters = (
        *("probs", "top_ks", "top_ps", "min_ps", "need_min_p_sampling", "sampling_seed"),
        *("positions", "return_filtered_probs", "max_top_k"),
    )
    relies_on = (
        "probs_sort[probs_sort < min_p_thresholds.view(-1, 1)] = 0.0",
        "probs_sort[(probs_sum - probs_sort) > top_ps.view(-1, 1)] = 0.0",
        ">= top_ks.view(-1, 1)",
    )

    def around(
        self,
        original: Callable,
        probs: torch.Tensor,
        top_ks: torch.Tensor,
        top_ps: torch.Tensor,
        min_ps: torch.Tensor,
        need_min_p_sampling: bool,
        sampling_seed: torch.Tensor | None,
        positions: torch.Tensor,
        *,
        return_filtered_probs: bool = False,
        max_top_k: int | None = None,
    ) -> Any:
        if need_min_p_sampling and sampling_seed is not None:
            least = probs.amax(dim=-1, keepdim=True) * min_ps.view(-1, 1)
            probs, need_min_p_sampling = probs.masked_fill(probs < least, 0.0), False
        if sampling_seed is None or return_filtered_probs:
            return original(
                *(probs, top_ks, top_ps, min_ps, need_min_p_sampling, sampling_seed, positions),
                return_filtered_probs=return_filtered_probs,
                max_top_k=max_top_k,
            )
        from sglang.srt.layers.sampler import multinomial_with_seed

        logprobs = torch.log(keep_likeliest(probs, top_ks, top_ps))
        return multinomial_with_seed(logprobs, sampling_seed, positions).view(-1).to(torch.int32)


def keep_likeliest(probs: torch.Tensor, top_ks: torch.Tensor, top_ps: torch.Tensor) -> torch.Tensor:
    """``probs [n, m]`` with 0 for what top-k and top-p (``[n]``) leave out, not normalised."""
    ordered, places = probs.sort(dim=-1, descending=True)
    rank = torch.arange(ordered.shape[-1], device=probs.device)
    # A sum of all probabilities may be a little over 1, and 1 stands for no limit.
    reached = (ordered.cumsum(dim=-1) - ordered > top_ps.view(-1, 1)) & (top_ps < 1).view(-1, 1)
    out = (rank >= top_ks.view(-1, 1)) | reached
    return torch.zeros_like(probs).scatter_(-1, places, ordered.masked_fill(out, 0.0))
