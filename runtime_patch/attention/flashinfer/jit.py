"""The modules FlashInfer's JIT builds for the FlashInfer kernel.

Built on first use and kept in FlashInfer's own cache; a build takes from half a minute to
a few. Needs nvcc (CUDA_HOME) and ninja.
"""

from __future__ import annotations

from pathlib import Path

import torch

SOURCES = Path(__file__).parent / "csrc"
NAMES = {torch.bfloat16: "bf16", torch.float16: "f16"}
# K and V pools have equal strides: half of the instantiations is enough.
OPTIONS = {"paged_kv_stride_mode": "equal"}


def glue_spec():
    """FlashInfer JitSpec of ``rotate_rows`` and ``merge_rows`` (csrc/glue.cu)."""
    from flashinfer.jit import gen_jit_spec

    return gen_jit_spec("hogwild_glue", [SOURCES / "glue.cu"], extra_include_paths=[SOURCES])


def variant_arguments(dtype: torch.dtype, dim: int) -> list:
    """``jit_args`` of a paged prefill wrapper for queries, cache and output of ``dtype``.

    Its run() takes, behind q and the cache, ``kv_limit`` (int32 per query row) and the
    softmax scale."""
    return [
        f"hogwild_shared_segment_{NAMES[dtype]}_d{dim}",
        dtype,
        dtype,
        dtype,
        torch.int32,
        dim,
        dim,
        ["kv_limit"],
        ["int32_t"],
        ["sm_scale"],
        ["double"],
        "HogwildSharedSegment",
        (SOURCES / "variant.cuh").read_text(),
    ]


def variant_spec(dtype: torch.dtype, dim: int):
    """JitSpec of that module, as the wrapper makes it itself; for building ahead."""
    from flashinfer.jit import gen_customize_batch_prefill_module

    return gen_customize_batch_prefill_module("fa2", *variant_arguments(dtype, dim), **OPTIONS)
