"""The plan on a GPU through FlashInfer's paged prefill kernel (fa2).

Each segment is a FlashInfer request whose query rows are all its readers, rotated for it
by a small kernel in front; the keys each may see are a mask inside, and another small
kernel merges the partial results. Decode kernels cannot do this: they take one query row
per request. See docs/gpu.md for what has run where.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable
from typing import Protocol

import torch

from runtime_patch.attention.flashinfer.jit import NAMES, OPTIONS, glue_spec, variant_arguments
from runtime_patch.attention.flashinfer.requests import Requests, make_requests
from runtime_patch.attention.kernel import Kernel, check_tensors
from runtime_patch.attention.plan import Plan
from runtime_patch.attention.rope import Rope
from runtime_patch.errors import KernelUnavailable

logger = logging.getLogger(__name__)

DIMS = (64, 128, 256)
# FlashInfer keeps partial results of its own split here, which is never used.
WORKSPACE_BYTES = 16 << 20


class Attention(Protocol):
    """What the kernel needs of FlashInfer's wrapper, for one dtype and head dimension."""

    def plan(self, *lists: torch.Tensor, **options) -> None: ...

    def run(
        self, q: torch.Tensor, cache: tuple, limit: torch.Tensor, scale: float, **options
    ) -> tuple[torch.Tensor, torch.Tensor]: ...


class FlashInfer:
    """Attention by three launches per layer: rotate, attend, merge.

    glue: module with ``rotate_rows`` and ``merge_rows`` (csrc/glue.cu).
    attention: makes the Attention for a dtype and head dimension, once each.
    """

    name = "flashinfer"

    def __init__(
        self,
        device: torch.device,
        processors: int,
        glue,
        attention: Callable[[torch.dtype, int, torch.device], Attention],
    ) -> None:
        self._device = device
        self._processors = processors
        self._glue = glue
        self._make_attention = attention
        self._attention: dict[tuple, Attention] = {}
        self._planned: dict[tuple, Plan] = {}

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
        _check_supported(q, k, v)
        rows, heads, dim = q.shape
        kv_heads = k.shape[1]
        requests = plan.cached(
            ("flashinfer", rope.key, kv_heads),
            lambda: make_requests(plan, rope, kv_heads, self._processors, self._device),
        )
        attention = self._planned_attention(plan, requests, q.dtype, heads, kv_heads, dim)
        count = requests.row.shape[0]
        rotated = q.new_empty(count, heads, dim)
        partial = torch.empty_like(rotated)
        self._glue.rotate_rows(
            q, requests.row, requests.table, requests.cos, requests.sin, rotated, rope.neox
        )
        _, lse = attention.run(
            rotated,
            (k.unsqueeze(1), v.unsqueeze(1)),
            requests.limit,
            scale,
            out=partial,
            return_lse=True,
            # the rotation is an ordinary launch, so there is nothing to overlap with
            enable_pdl=False,
        )
        out = q.new_empty(rows, heads, dim)
        self._glue.merge_rows(partial, lse, requests.order, requests.start, out)
        return out

    def _planned_attention(
        self,
        plan: Plan,
        requests: Requests,
        dtype: torch.dtype,
        heads: int,
        kv_heads: int,
        dim: int,
    ) -> Attention:
        kind = (dtype, dim)
        if kind not in self._attention:
            self._attention[kind] = self._make_attention(dtype, dim, self._device)
        attention, use = self._attention[kind], (plan, heads, kv_heads)
        planned = self._planned.get(kind)
        # one plan serves all layers; `is` because plans hold tensors and do not compare
        if planned is None or planned[0] is not plan or planned[1:] != use[1:]:
            attention.plan(
                requests.row_start,
                requests.key_start,
                requests.slots,
                torch.ones(len(requests.key_start) - 1, dtype=torch.int32),
                num_qo_heads=heads,
                num_kv_heads=kv_heads,
                head_dim_qk=dim,
                page_size=1,
                q_data_type=dtype,
                kv_data_type=dtype,
                disable_split_kv=True,
            )
            self._planned[kind] = use
        return attention


def create(device: torch.device) -> Kernel:
    if device.type != "cuda":
        raise KernelUnavailable(f"the flashinfer kernel runs on cuda, not on {device.type}")
    try:
        from flashinfer import BatchPrefillWithPagedKVCacheWrapper as Wrapper
    except ImportError as error:
        raise KernelUnavailable(
            f"FlashInfer is missing ({error}); pip install flashinfer-python==0.7.2"
        ) from error
    if "variant_owns_mask" not in inspect.signature(Wrapper.__init__).parameters:
        raise KernelUnavailable(
            "this FlashInfer cannot leave the mask to a kernel variant; "
            "pip install flashinfer-python==0.7.2"
        )
    try:
        glue = glue_spec().build_and_load()
    except Exception as error:
        raise KernelUnavailable(
            f"FlashInfer could not build a module; it needs nvcc (set CUDA_HOME) and ninja: {error}"
        ) from error
    processors = torch.cuda.get_device_properties(device).multi_processor_count
    return FlashInfer(device, processors, glue, paged_prefill)


def paged_prefill(dtype: torch.dtype, dim: int, device: torch.device) -> Attention:
    """FlashInfer's wrapper with this project's variant; builds it on first use."""
    from flashinfer import BatchPrefillWithPagedKVCacheWrapper

    logger.info("building FlashInfer's attention for %s, head dimension %d", dtype, dim)
    return BatchPrefillWithPagedKVCacheWrapper(
        torch.empty(WORKSPACE_BYTES, dtype=torch.uint8, device=device),
        "NHD",
        backend="fa2",
        jit_args=variant_arguments(dtype, dim),
        jit_kwargs=OPTIONS,
        variant_owns_mask=True,
    )


def _check_supported(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> None:
    remedy = "choose the triton kernel for this model"
    if q.dtype not in NAMES or k.dtype != q.dtype:
        raise ValueError(
            f"FlashInfer takes bfloat16 or float16 for queries and cache alike, got {q.dtype} "
            f"and {k.dtype}; {remedy}"
        )
    if k.shape != v.shape or k.shape[2] not in DIMS:
        raise ValueError(
            f"FlashInfer takes equal head dimensions of {DIMS}, got {k.shape[2]} and "
            f"{v.shape[2]}; {remedy}"
        )
    if k.stride() != v.stride():
        raise ValueError(f"FlashInfer takes K and V pools with equal strides; {remedy}")
