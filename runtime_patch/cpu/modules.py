"""The operators put to work in a model's modules, through SGLang's own seams.

A linear layer gets another ``quant_method``; a norm, activation or rotary embedding gets
another ``_forward_method``, as SGLang's own classes pin one. Each hands what its operator
does not cover to what was there before, so every model and every input stays correct.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable

import torch
from sglang.kernels.fused_op import BaseFusedOp
from sglang.srt.layers.activation import SiluAndMul
from sglang.srt.layers.layernorm import RMSNorm
from sglang.srt.layers.linear import LinearBase
from sglang.srt.layers.logits_processor import LogitsProcessor
from sglang.srt.layers.quantization.unquant import (
    UnquantizedEmbeddingMethod,
    UnquantizedLinearMethod,
)
from sglang.srt.layers.rotary_embedding.base import RotaryEmbedding
from sglang.srt.layers.rotary_embedding.utils import apply_rotary_emb
from sglang.srt.layers.vocab_parallel_embedding import VocabParallelEmbedding

from runtime_patch.cpu import pages
from runtime_patch.cpu.ops import Ops

logger = logging.getLogger(__name__)


class FewRowsLinearMethod(UnquantizedLinearMethod):
    """A linear layer whose inputs of few rows take the C++ operator."""

    def __init__(self, ops: Ops):
        self._ops = ops

    def apply(
        self, layer: torch.nn.Module, x: torch.Tensor, bias: torch.Tensor | None = None
    ) -> torch.Tensor:
        if self._ops.takes_linear(x, layer.weight, bias):
            return self._ops.linear(x, layer.weight, bias)
        return super().apply(layer, x, bias)


class FewRowsEmbeddingMethod(UnquantizedEmbeddingMethod):
    """The same for an embedding that is multiplied with to give the logits."""

    def __init__(self, ops: Ops):
        self._ops = ops

    def apply(
        self, layer: torch.nn.Module, x: torch.Tensor, bias: torch.Tensor | None = None
    ) -> torch.Tensor:
        x = x.to(layer.weight.dtype)
        if self._ops.takes_linear(x, layer.weight, bias):
            return self._ops.linear(x, layer.weight, bias)
        return super().apply(layer, x, bias)


def _norm(module: RMSNorm, ops: Ops) -> Callable | None:
    if (
        module.variance_size_override is not None
        or module.cast_x_before_out_mul
        or module.fp32_residual
        or module.override_orig_dtype is not None
    ):
        return None

    def forward(x, residual=None, post_residual_addition=None, quant_linear=None):
        weight = module.weight
        if post_residual_addition is None and ops.takes_rms_norm(x, weight, residual):
            return ops.rms_norm(x, weight, module.variance_epsilon, residual)
        return module.forward_native(x, residual, post_residual_addition, quant_linear)

    return forward


def _activation(module: SiluAndMul, ops: Ops) -> Callable:
    def forward(x):
        return ops.silu_and_mul(x) if ops.takes_silu_and_mul(x) else module.forward_native(x)

    return forward


def _rotary(module: RotaryEmbedding, ops: Ops) -> Callable | None:
    if hasattr(module, "sin_cos_cache") or module._apply_rotary_emb_wrapped is not apply_rotary_emb:
        return None
    dim, neox = module.head_size, module.is_neox_style

    def forward(positions, query, key, offsets=None, fused_set_kv_buffer_arg=None):
        table = module.cos_sin_cache
        if (
            offsets is None
            and fused_set_kv_buffer_arg is None
            and key is not None
            and ops.takes_rotate(positions, query, key, table, dim)
        ):
            # In place, as SGLang's operators on the GPU do it.
            ops.rotate(positions, query, key, table, dim, neox)
            return query, key
        return module.forward_native(positions, query, key, offsets, fused_set_kv_buffer_arg)

    return forward


def _is_plain_rotary(module: torch.nn.Module) -> bool:
    """Does it rotate as the base class does, whatever its angles are?"""
    kind = type(module)
    return (
        isinstance(module, RotaryEmbedding)
        and kind.forward_native is RotaryEmbedding.forward_native
        and kind.forward is BaseFusedOp.forward
    )


def _forward_for(module: torch.nn.Module, ops: Ops) -> Callable | None:
    if getattr(module, "_forward_method", None) is not None:
        return None  # SGLang has pinned one itself
    # Subclasses of norms and activations compute something else.
    if type(module) is RMSNorm:
        return _norm(module, ops)
    if type(module) is SiluAndMul:
        return _activation(module, ops)
    if _is_plain_rotary(module):
        return _rotary(module, ops)
    return None


def _method_for(module: torch.nn.Module, ops: Ops, plain_logits: bool) -> object | None:
    method = type(getattr(module, "quant_method", None))
    if isinstance(module, LinearBase) and method is UnquantizedLinearMethod:
        return FewRowsLinearMethod(ops)
    if isinstance(module, VocabParallelEmbedding) and method is UnquantizedEmbeddingMethod:
        return FewRowsEmbeddingMethod(ops) if plain_logits else None
    return None


def _computes_logits_in_model_dtype(model: torch.nn.Module) -> bool:
    """With an embedding method of ours SGLang leaves the logits' dtype to it."""
    heads = [module for module in model.modules() if isinstance(module, LogitsProcessor)]
    return all(not h.use_fp32_lm_head and h.rl_on_policy_target is None for h in heads)


def speed_up(model: torch.nn.Module, ops: Ops) -> None:
    """Let the modules of a loaded model use the operators, and move weights to huge pages."""
    plain_logits = _computes_logits_in_model_dtype(model)
    served: Counter[str] = Counter()
    weights: dict[int, torch.nn.Parameter] = {}
    for module in model.modules():
        if method := _method_for(module, ops, plain_logits):
            module.quant_method = method
            weights[id(module.weight)] = module.weight
        elif forward := _forward_for(module, ops):
            module._forward_method = forward
        else:
            continue
        served[type(module).__name__] += 1
    pages.move(weights.values())
    logger.info(
        "hogwild: operators in C++ (%s) serve %s",
        ops.instruction_set,
        ", ".join(f"{count} {name}" for name, count in served.items()) or "no module of this model",
    )
