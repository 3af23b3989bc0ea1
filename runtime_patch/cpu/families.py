"""Which models ``csrc/decoder.h`` follows, and whether a given one is put together so."""

from __future__ import annotations

import torch
from sglang.srt.layers.activation import SiluAndMul
from sglang.srt.layers.layernorm import RMSNorm
from sglang.srt.layers.linear import (
    MergedColumnParallelLinear,
    QKVParallelLinear,
    RowParallelLinear,
)
from sglang.srt.layers.radix_attention import RadixAttention
from sglang.srt.models import llama, qwen2, qwen3
from sglang.srt.runtime_context import get_lora, get_parallel

from runtime_patch.attention.cpp.kernel import TYPES
from runtime_patch.cpu.modules import FewRowsLinearMethod

# Decoder: its layers, attention and MLP. Subclasses may do something else.
FAMILIES: dict[type, tuple[type, type, type]] = {
    llama.LlamaModel: (llama.LlamaDecoderLayer, llama.LlamaAttention, llama.LlamaMLP),
    qwen2.Qwen2Model: (qwen2.Qwen2DecoderLayer, qwen2.Qwen2Attention, qwen2.Qwen2MLP),
    qwen3.Qwen3Model: (qwen3.Qwen3DecoderLayer, qwen3.Qwen3Attention, qwen3.Qwen3MLP),
}


class NotCovered(Exception):
    """The model is not one for the decoder; the message says why."""


def _require(condition: bool, reason: str) -> None:
    if not condition:
        raise NotCovered(reason)


def _require_alike(name: str, values: list) -> None:
    _require(all(value == values[0] for value in values), f"its layers differ in {name}")


def head_norms(attention: torch.nn.Module) -> list[RMSNorm]:
    return [getattr(attention, name) for name in ("q_norm", "k_norm") if hasattr(attention, name)]


def require_covered(decoder: torch.nn.Module) -> None:
    """Raise NotCovered unless the decoder is put together of just what is expected.

    The operators of ``modules.py`` must be in place: what they do not serve is not covered."""
    _require(type(decoder) in FAMILIES, f"a {type(decoder).__name__} is not a known decoder")
    parallel = get_parallel()
    _require(parallel.tp_size == parallel.pp_size == 1, "it is split over processes")
    _require(not get_lora().enable_lora, "it has LoRA adapters")
    for layer in decoder.layers:
        _require_layer(layer, FAMILIES[type(decoder)])
    layers, attentions = list(decoder.layers), [layer.self_attn for layer in decoder.layers]
    norms = [decoder.norm, *(norm for layer in layers for norm in _layer_norms(layer))]
    _require_norms(norms)
    _require_norms([norm for attention in attentions for norm in head_norms(attention)])
    _require_alike("rotary embedding", [id(attention.rotary_emb) for attention in attentions])
    _require(attentions[0].rotary_emb._forward_method is not None, "its rotary embedding is odd")
    for name in ("num_heads", "num_kv_heads", "head_dim", "scaling"):
        _require_alike(name, [getattr(attention, name) for attention in attentions])
    _require_alike("width", [layer.mlp.down_proj.weight.shape for layer in layers])
    types = {parameter.dtype for parameter in decoder.parameters()}
    _require(len(types) == 1 and types < set(TYPES), f"its weights are in {types}")


def _layer_norms(layer: torch.nn.Module) -> list[RMSNorm]:
    return [layer.input_layernorm, layer.post_attention_layernorm]


def _require_norms(norms: list[torch.nn.Module]) -> None:
    for norm in norms:
        _require(type(norm) is RMSNorm, f"it has a {type(norm).__name__}")
        _require(norm._forward_method is not None, "one of its norms is odd")
    _require_alike("epsilon", [norm.variance_epsilon for norm in norms])


def _require_layer(layer: torch.nn.Module, family: tuple[type, type, type]) -> None:
    attention, mlp = layer.self_attn, layer.mlp
    _require((type(layer), type(attention), type(mlp)) == family, "its layers are odd")
    linears = {
        attention.qkv_proj: QKVParallelLinear,
        attention.o_proj: RowParallelLinear,
        mlp.gate_up_proj: MergedColumnParallelLinear,
        mlp.down_proj: RowParallelLinear,
    }
    for linear, kind in linears.items():
        _require(type(linear) is kind, f"it has a {type(linear).__name__}")
        _require(isinstance(linear.quant_method, FewRowsLinearMethod), "it is quantised")
        _require(not linear.skip_bias_add, "a linear layer of it leaves its bias to others")
    _require(type(attention.attn) is RadixAttention, "its attention is odd")
    _require(attention.attn.v_head_dim == attention.head_dim, "its values are of another size")
    _require(type(mlp.act_fn) is SiluAndMul, f"its activation is {type(mlp.act_fn).__name__}")
    _require(mlp.act_fn._forward_method is not None, "its activation is odd")
