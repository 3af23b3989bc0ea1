"""The plan on a GPU through Triton: paged, segment-major, split by keys.

Compiled for sm_80, sm_90 and sm_100 and checked in Triton's interpreter by the tests; see
docs/gpu.md for what has run where.
"""

from __future__ import annotations

import torch

from runtime_patch.attention.kernel import Kernel, check_tensors
from runtime_patch.attention.plan import Plan
from runtime_patch.attention.rope import Rope
from runtime_patch.attention.tiling import divide, make_tiles
from runtime_patch.attention.triton.inputs import Inputs, Sizes
from runtime_patch.attention.triton.tile import Tile, padded
from runtime_patch.errors import KernelUnavailable

try:
    import triton

    from runtime_patch.attention.triton.attend import attend, merge
except ImportError as error:  # torch for the CPU comes without it
    triton, missing = None, error

LOG2_E = 1.4426950408889634
DTYPES = (torch.bfloat16, torch.float16, torch.float32)


class Triton:
    """Attention by two launches per layer: ``attend`` over the work's items, then ``merge``.

    sizes: None, or the room of static inputs for CUDA graphs (docs/gpu.md): then every
        launch has the same grid and pointers, ``prepare`` refills the inputs in place
        before a replay, and a plan that does not fit raises ValueError.
    processors: multiprocessors to split the work for, by default the device's.
    """

    name = "triton"

    def __init__(
        self, device: torch.device, sizes: Sizes | None = None, processors: int | None = None
    ) -> None:
        self._device = device
        self._sizes = sizes
        self._static: Inputs | None = None
        self._prepared: Plan | None = None
        if processors is None:
            processors = torch.cuda.get_device_properties(device).multi_processor_count
        self._processors = processors

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
        if q.dtype not in DTYPES or k.dtype not in DTYPES:
            raise ValueError(f"q is {q.dtype} and the cache {k.dtype}; known are {DTYPES}")
        if interpreted() and torch.bfloat16 in (q.dtype, k.dtype):
            raise ValueError("Triton's interpreter multiplies bfloat16 wrongly; use float32")
        group = q.shape[1] // k.shape[1]
        tile = self._tile(plan, group, max(k.shape[2], v.shape[2]), k.element_size())
        inputs = self._inputs(plan, rope, tile, k.shape[1])
        placed = inputs.placed if self._sizes is None else self._sizes.partials
        return _launch(inputs, placed, tile, q, k, v, rope, scale)

    def prepare(
        self, plan: Plan, q_heads: int, k: torch.Tensor, v: torch.Tensor, rope: Rope
    ) -> None:
        """Refill the static inputs for ``plan`` ahead of a CUDA graph replay."""
        if self._sizes is None:
            raise ValueError("prepare() is for a kernel made with sizes; call the kernel instead")
        group = q_heads // k.shape[1]
        tile = self._tile(plan, group, max(k.shape[2], v.shape[2]), k.element_size())
        self._inputs(plan, rope, tile, k.shape[1])

    def _tile(self, plan: Plan, group: int, dim: int, element_size: int) -> Tile:
        if self._sizes is not None:
            reads = self._sizes.rows
        else:
            reads = plan.cached("most reads", lambda: int(plan.host.read_start.diff().max()))
        return Tile.choose(reads, group, dim, element_size)

    def _inputs(self, plan: Plan, rope: Rope, tile: Tile, kv_heads: int) -> Inputs:
        if self._sizes is None:
            key = ("triton", rope.key, tile.reads, kv_heads)
            return plan.cached(key, lambda: self._filled(plan, rope, tile, kv_heads))
        if self._prepared is not plan:
            self._static = self._filled(plan, rope, tile, kv_heads)
            self._prepared = plan
        return self._static

    def _filled(self, plan: Plan, rope: Rope, tile: Tile, kv_heads: int) -> Inputs:
        tiles = make_tiles(plan, tile.reads)
        work = divide(plan, tiles, processors=self._processors, kv_heads=kv_heads, join=True)
        sizes = self._sizes or Sizes.of(plan, work)
        inputs = self._static or Inputs(sizes, rope, self._device)
        inputs.fill(plan, work)
        return inputs


def create(device: torch.device) -> Kernel:
    if triton is None:
        raise KernelUnavailable(f"the triton kernel needs Triton ({missing}); pip install triton")
    if device.type == "cuda":
        return Triton(device)
    if not interpreted():
        raise KernelUnavailable(
            f"the triton kernel runs on cuda, not on {device.type}; "
            "TRITON_INTERPRET=1 runs it there, slowly, for tests"
        )
    return Triton(device, processors=16)


def interpreted() -> bool:
    """Whether the kernels run in Triton's interpreter, as fixed when they were imported."""
    return not isinstance(attend, triton.runtime.JITFunction)


def _launch(
    inputs: Inputs,
    placed: int,
    tile: Tile,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    rope: Rope,
    scale: float,
) -> torch.Tensor:
    heads, kv_heads, value_dim = q.shape[1], k.shape[1], v.shape[2]
    out = q.new_empty(q.shape[0], heads, value_dim)
    partial = q.new_empty(placed, heads, value_dim, dtype=torch.float32)
    lse = q.new_empty(placed, heads, dtype=torch.float32)
    block_v = padded(value_dim)
    group = heads // kv_heads
    attend[(inputs.sizes.items, kv_heads * -(-group // tile.heads))](
        q,
        k,
        v,
        out,
        partial,
        lse,
        inputs.cos,
        inputs.sin,
        inputs.slots,
        inputs["item_piece"],
        inputs["item_partial"],
        inputs["piece_slot"],
        inputs["piece_key"],
        inputs["piece_keys"],
        inputs["piece_read"],
        inputs["read_row"],
        inputs["read_limit"],
        inputs["read_table"],
        inputs["partial_place"],
        scale * LOG2_E,
        q.stride(0),
        q.stride(1),
        k.stride(0),
        k.stride(1),
        v.stride(0),
        v.stride(1),
        GROUP=group,
        SHARE=tile.heads,
        HEADS=heads,
        HEAD_DIM=k.shape[2],
        VALUE_DIM=value_dim,
        ROTARY_DIM=rope.rotary_dim,
        NEOX=rope.neox,
        BLOCK_M=tile.rows,
        BLOCK_N=tile.keys,
        BLOCK_D=padded(k.shape[2]),
        BLOCK_V=block_v,
        num_warps=tile.warps,
        num_stages=tile.stages,
    )
    if not placed:
        return out
    merge[(inputs.sizes.rows, heads)](
        partial,
        lse,
        inputs["merge_start"],
        out,
        HEADS=heads,
        VALUE_DIM=value_dim,
        BLOCK_P=16,
        BLOCK_V=block_v,
        num_warps=4,
    )
    return out
