"""Is the model one that shared views fit, and what is its rotation?"""

from __future__ import annotations

from typing import Any

import torch
from sglang.srt.configs.hybrid_arch import mambaish_config
from sglang.srt.configs.model_config import AttentionArch
from sglang.srt.layers.radix_attention import AttentionType, RadixAttention
from sglang.srt.layers.rotary_embedding.base import LinearScalingRotaryEmbedding, RotaryEmbedding
from sglang.srt.layers.rotary_embedding.rope_variant import Llama3RotaryEmbedding
from sglang.srt.layers.rotary_embedding.yarn import YaRNScalingRotaryEmbedding

from runtime_patch.attention.rope import Rope

# The largest difference between the model's own cos/sin table (float32 angles) and the one
# its inv_freq gives in float64, at the positions looked at.
TABLE_TOLERANCE = 2e-3


class UnsupportedModel(ValueError):
    """The model's attention does not fit shared views; the message names the reason."""


def _refuse(reason: str) -> None:
    raise UnsupportedModel(
        f"hogwild cannot serve this model: {reason}. Serve it without --attention-backend "
        "hogwild, or use a model with full attention and plain rotary embeddings."
    )


def find_rope(model: torch.nn.Module, model_config: Any) -> Rope:
    """The model's rotation, or UnsupportedModel.

    The query of every layer is rotated further by one and the same table, so every
    attention layer must be causal, unbounded, rotary, and rotate alike."""
    if model_config.attention_arch == AttentionArch.MLA:
        _refuse("it uses multi-head latent attention (MLA), whose keys are not stored per head")
    if model_config.is_encoder_decoder:
        _refuse("it has cross attention")
    if mambaish_config(model_config) is not None:
        _refuse("it has layers with a running state (Mamba or linear attention)")
    layers = {
        name: module for name, module in model.named_modules() if isinstance(module, RadixAttention)
    }
    if not layers:
        _refuse("no attention layer was found")
    ropes: dict[int, Any] = {}
    for name, layer in layers.items():
        _check_layer(name, layer)
        parent = model.get_submodule(name.rpartition(".")[0])
        rotary = getattr(parent, "rotary_emb", None)
        if rotary is None or getattr(parent, "use_rope", True) is False:
            _refuse(f"layer {name} has no rotary embedding (NoPE)")
        if getattr(parent, "llama_4_scaling_beta", None) is not None:
            _refuse(f"layer {name} scales attention by position")
        ropes[id(rotary)] = rotary
    found = [_rope_of(rotary) for rotary in ropes.values()]
    first = found[0]
    for other in found[1:]:
        if other.neox != first.neox or not torch.equal(other.inv_freq, first.inv_freq):
            _refuse("its layers rotate differently (for example local and global layers)")
    return first


def _check_layer(name: str, layer: RadixAttention) -> None:
    if layer.is_cross_attention or layer.attn_type is not AttentionType.DECODER:
        _refuse(f"layer {name} is not causal self-attention")
    if layer.sliding_window_size > 0:
        _refuse(f"layer {name} has a sliding window of {layer.sliding_window_size} tokens")
    if layer.logit_cap:
        _refuse(f"layer {name} caps its attention logits")
    if layer.xai_temperature_len > 0 or layer.use_irope:
        _refuse(f"layer {name} scales attention by position")


def _rope_of(rotary: Any) -> Rope:
    kind = type(rotary)
    if kind in (RotaryEmbedding, Llama3RotaryEmbedding):
        inv_freq, magnitude = rotary._compute_inv_freq(rotary.base), 1.0
    elif kind is LinearScalingRotaryEmbedding and len(rotary.scaling_factors) == 1:
        inv_freq, magnitude = rotary._compute_inv_freq(rotary.base), 1.0
        inv_freq = inv_freq / rotary.scaling_factors[0]
    elif kind is YaRNScalingRotaryEmbedding:
        inv_freq, magnitude = rotary._compute_inv_freq(rotary.scaling_factor), rotary.mscale
    else:
        _refuse(
            f"its rotary embedding is {kind.__name__}; supported are default, linear, llama3 "
            "and YaRN"
        )
    rope = Rope(inv_freq.detach().to("cpu", torch.float64), neox=rotary.is_neox_style)
    _check_table(rotary.cos_sin_cache, rope, magnitude, kind.__name__)
    return rope


def _check_table(table: torch.Tensor, rope: Rope, magnitude: float, name: str) -> None:
    """Does the model's own cos/sin table say the same as the rotation found?"""
    if table.dtype != torch.float32:
        _refuse(
            f"its cos/sin table is in {table.dtype}, which is wrong at long range: "
            "set SGLANG_ROPE_CACHE_FP32=1"
        )
    positions = [p for p in (0, 1, 7, 100, 1000) if p < len(table)]
    cos, sin = rope.table(torch.tensor(positions))
    expected = torch.cat([cos, sin], dim=-1) * magnitude
    worst = (table[positions].cpu() - expected).abs().max().item()
    if worst > TABLE_TOLERANCE:
        _refuse(f"its rotary table ({name}) differs from its frequencies by {worst:.1e}")
