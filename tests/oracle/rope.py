"""Rotary embeddings in float64, from a model's config alone.

Sources: RoFormer (arXiv 2104.09864), position interpolation (2306.15595), YaRN
(2309.00071), and the frequency bands of the Llama 3.1 release.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class Rotary:
    """frequencies: float64 ``[pairs]``, radians per position.
    neox: pairs are (i, i + pairs) if true, (2i, 2i + 1) otherwise.
    magnitude: YaRN's factor on every rotated vector, 1 for the other kinds."""

    frequencies: torch.Tensor
    neox: bool
    magnitude: float = 1.0

    def place(self, x: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        """Rotate ``x [n, heads, head_dim]`` to ``positions [n]``; the dimensions behind
        the rotary ones pass unchanged."""
        pairs = self.frequencies.shape[0]
        turn = torch.polar(
            torch.full((x.shape[0], pairs), self.magnitude, dtype=torch.float64),
            positions.double()[:, None] * self.frequencies,
        )[:, None]
        rotary, rest = x.split([2 * pairs, x.shape[-1] - 2 * pairs], dim=-1)
        shape = (2, pairs) if self.neox else (pairs, 2)
        axis = -2 if self.neox else -1
        first, second = rotary.unflatten(-1, shape).unbind(axis)
        turned = torch.view_as_real(torch.complex(first, second) * turn)
        if self.neox:
            turned = turned.transpose(-1, -2)
        return torch.cat([turned.flatten(-2), rest], dim=-1)


def rotary_from_config(config: dict, head_dim: int, neox: bool) -> Rotary:
    """``config`` is a config.json in the older spelling (``rope_theta``, ``rope_scaling``)
    or the newer one (``rope_parameters``)."""
    scaling = dict(config.get("rope_parameters") or config.get("rope_scaling") or {})
    theta = scaling.get("rope_theta", config.get("rope_theta", 10000.0))
    share = scaling.get("partial_rotary_factor", config.get("partial_rotary_factor", 1.0))
    dim = int(head_dim * share)
    plain = theta ** -(torch.arange(0, dim, 2, dtype=torch.float64) / dim)
    kind = scaling.get("rope_type", scaling.get("type", "default"))
    if kind == "default":
        return Rotary(plain, neox)
    if kind == "linear":
        return Rotary(plain / scaling["factor"], neox)
    if kind == "llama3":
        return Rotary(_llama3(plain, scaling), neox)
    if kind == "yarn":
        magnitude = scaling.get("attention_factor") or 0.1 * math.log(scaling["factor"]) + 1
        return Rotary(_yarn(plain, theta, scaling), neox, magnitude)
    raise ValueError(f"the oracle does not know the rope type {kind!r}")


def _llama3(plain: torch.Tensor, scaling: dict) -> torch.Tensor:
    turns = scaling["original_max_position_embeddings"] * plain / (2 * math.pi)
    low, high = scaling["low_freq_factor"], scaling["high_freq_factor"]
    keep = ((turns - low) / (high - low)).clamp(0, 1)
    return plain * keep + plain / scaling["factor"] * (1 - keep)


def _yarn(plain: torch.Tensor, theta: float, scaling: dict) -> torch.Tensor:
    pairs = plain.shape[0]
    context = scaling["original_max_position_embeddings"]

    def pair_turning(times: float) -> float:
        return pairs * math.log(context / (2 * math.pi * times)) / math.log(theta)

    first = max(math.floor(pair_turning(scaling.get("beta_fast", 32))), 0)
    last = min(math.ceil(pair_turning(scaling.get("beta_slow", 1))), 2 * pairs - 1)
    index = torch.arange(pairs, dtype=torch.float64)
    stretch = ((index - first) / max(last - first, 1e-3)).clamp(0, 1)
    return plain * (1 - stretch) + plain / scaling["factor"] * stretch
