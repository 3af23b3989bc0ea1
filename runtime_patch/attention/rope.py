"""The rotation that moves a stored query to its place in a view."""

from __future__ import annotations

from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class Rope:
    """A model's rotary embedding, as far as a further rotation needs it.

    inv_freq: float64 ``[rotary_dim / 2]`` on the CPU: the model's own, after llama3,
        linear or YaRN scaling. YaRN's attention factor is already in the stored q and k.
    neox: True pairs dimension i with i + rotary_dim / 2, False pairs 2i with 2i + 1.
    """

    inv_freq: torch.Tensor
    neox: bool = True

    def __post_init__(self) -> None:
        if self.inv_freq.dtype != torch.float64 or self.inv_freq.ndim != 1:
            raise ValueError("inv_freq is a one-dimensional float64 tensor")

    @property
    def rotary_dim(self) -> int:
        return 2 * self.inv_freq.shape[0]

    @property
    def key(self) -> tuple[torch.Tensor, bool]:
        """For caches. A tensor hashes as the object it is, and a cache keeps it alive."""
        return self.inv_freq, self.neox

    def table(self, deltas: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """cos and sin, float32 ``[n, rotary_dim / 2]``, for int64 ``deltas [n]``.

        The angle is computed in float64 on the CPU: at 128k positions float32 is off by
        more than bfloat16's own rounding."""
        angle = deltas.to("cpu", torch.float64)[:, None] * self.inv_freq
        return angle.cos().float().to(deltas.device), angle.sin().float().to(deltas.device)


def rotate(q: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, neox: bool) -> torch.Tensor:
    """Rotate float32 ``q [n, heads, head_dim]`` by ``cos, sin [n, rotary_dim / 2]``.

    Dimensions behind rotary_dim pass unchanged."""
    half = cos.shape[-1]
    cos, sin = cos[:, None], sin[:, None]
    rotary, rest = q[..., : 2 * half], q[..., 2 * half :]
    if neox:
        a, b = rotary[..., :half], rotary[..., half:]
        turned = torch.cat([a * cos - b * sin, b * cos + a * sin], dim=-1)
    else:
        a, b = rotary[..., 0::2], rotary[..., 1::2]
        turned = torch.stack([a * cos - b * sin, b * cos + a * sin], dim=-1).flatten(-2)
    return torch.cat([turned, rest], dim=-1) if rest.shape[-1] else turned
