"""What a kernel is, and which one runs."""

from __future__ import annotations

import functools
import importlib
import logging
import os
from typing import Protocol

import torch

from runtime_patch.attention.plan import Plan
from runtime_patch.attention.rope import Rope
from runtime_patch.errors import KernelUnavailable

logger = logging.getLogger(__name__)

ENVIRONMENT = "HOGWILD_KERNEL"

# Each module has `create(device) -> Kernel` and raises KernelUnavailable with the remedy.
MODULES = {
    "reference": "runtime_patch.attention.reference",
    "aten": "runtime_patch.attention.aten",
    "cpp": "runtime_patch.attention.cpp.kernel",
    "triton": "runtime_patch.attention.triton.kernel",
    "flashinfer": "runtime_patch.attention.flashinfer.kernel",
}

# Best first, per device type.
PREFERENCE = {"cpu": ("cpp", "aten"), "cuda": ("flashinfer", "triton")}


class Kernel(Protocol):
    """Attention of a batch over its plan.

    q: ``[T, H, D]`` bfloat16, float16 or float32, rotated at the rows' stored positions.
    k: ``[slots, KH, D]`` and v: ``[slots, KH, Dv]``, the layer's KV pool itself; their last
        dimension is contiguous and the others may be strided. H is a multiple of KH.
    scale: factor on q . k before the softmax.
    Returns ``[T, H, Dv]`` in q's dtype: softmax attention of each row over its view.
    """

    name: str

    def __call__(
        self,
        plan: Plan,
        q: torch.Tensor,
        k: torch.Tensor,
        v: torch.Tensor,
        rope: Rope,
        scale: float,
    ) -> torch.Tensor: ...


def choose(name: str | None, device: torch.device | str) -> Kernel:
    """The kernel called ``name``, else the one HOGWILD_KERNEL names, else the best for device.

    Raises ValueError for an unknown name and KernelUnavailable when a kernel asked for by
    name cannot run here. Only an unforced choice falls back, with one warning.
    """
    device = torch.device(device)
    forced = name or os.environ.get(ENVIRONMENT)
    if forced:
        if forced not in MODULES:
            source = "kernel" if name else ENVIRONMENT
            raise ValueError(f"{source} {forced!r} is unknown; one of {', '.join(MODULES)}")
        return _create(forced, device)
    if device.type not in PREFERENCE:
        raise KernelUnavailable(f"no attention kernel for device type {device.type!r}")
    best, *others = PREFERENCE[device.type]
    try:
        return _create(best, device)
    except KernelUnavailable as error:
        reason = error
    for other in others:
        try:
            kernel = _create(other, device)
        except KernelUnavailable as error:
            reason = KernelUnavailable(f"{reason}; {error}")
            continue
        _warn_once(f"attention runs on the slower kernel {other}: {reason}")
        return kernel
    raise reason


@functools.cache
def _warn_once(message: str) -> None:
    logger.warning(message)


def _create(name: str, device: torch.device) -> Kernel:
    return importlib.import_module(MODULES[name]).create(device)


def check_tensors(
    plan: Plan, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, rope: Rope
) -> None:
    """Raise ValueError where the tensors do not fit the plan or one another."""
    if q.ndim != 3 or q.shape[0] != plan.num_rows:
        raise ValueError(f"q is [{plan.num_rows}, heads, dim] by the plan, got {list(q.shape)}")
    if k.ndim != 3 or v.ndim != 3 or k.shape[:2] != v.shape[:2]:
        raise ValueError(
            f"k and v are [slots, kv_heads, dim], got {list(k.shape)} and {list(v.shape)}"
        )
    if k.dtype != v.dtype:
        raise ValueError(f"k and v have one dtype, got {k.dtype} and {v.dtype}")
    if k.shape[2] != q.shape[2] or q.shape[1] % k.shape[1]:
        raise ValueError(
            f"q has {q.shape[1]} heads of {q.shape[2]}, the cache {k.shape[1]} of {k.shape[2]}"
        )
    if rope.rotary_dim > q.shape[2]:
        raise ValueError(f"rotary_dim {rope.rotary_dim} exceeds the head dimension {q.shape[2]}")
    if q.stride(2) != 1 or k.stride(2) != 1 or v.stride(2) != 1:
        raise ValueError("the last dimension of q, k and v must be contiguous")
