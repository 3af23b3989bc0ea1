"""Which models are served, with SGLang's own attention and rotary classes."""

from __future__ import annotations

import math
from types import SimpleNamespace

import pytest
import torch
from sglang.srt.configs.model_config import AttentionArch
from sglang.srt.configs.qwen3_next import Qwen3NextConfig
from sglang.srt.layers.radix_attention import AttentionType, RadixAttention
from sglang.srt.layers.rotary_embedding import get_rope
from sglang.srt.layers.rotary_embedding.base import RotaryEmbedding
from torch import nn
from transformers import LlamaConfig

from runtime_patch.attention.model_support import UnsupportedModel, find_rope

HEAD_DIM = 64
LLAMA3 = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 256,
}
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 512}

LONGROPE = {
    "rope_type": "longrope",
    "short_factor": [1.0] * (HEAD_DIM // 2),
    "long_factor": [2.0] * (HEAD_DIM // 2),
    "original_max_position_embeddings": 512,
}


def rope(scaling: dict | None = None, **other) -> RotaryEmbedding:
    asked = {
        "head_size": HEAD_DIM,
        "rotary_dim": HEAD_DIM,
        "max_position": 2048,
        "base": 10000,
        "is_neox_style": True,
        "dtype": torch.float32,
    }
    return get_rope(**asked | other, rope_scaling=scaling)


class Attention(nn.Module):
    """A layer as SGLang's models write it."""

    def __init__(self, rotary: nn.Module | None, **layer):
        super().__init__()
        self.attn = RadixAttention(4, HEAD_DIM, 0.125, 2, layer_id=0, **layer)
        if rotary is not None:
            self.rotary_emb = rotary


def model(*layers: Attention) -> nn.Module:
    root = nn.Module()
    root.layers = nn.ModuleList(layers)
    return root


def config(**other) -> SimpleNamespace:
    usual = {
        "attention_arch": AttentionArch.MHA,
        "is_encoder_decoder": False,
        "hf_config": LlamaConfig(),
        "linear_attn_registry_result": None,
        "is_draft_model": False,
    }
    return SimpleNamespace(**usual | other)


@pytest.mark.parametrize(
    ("asked", "magnitude"),
    [
        ({}, 1.0),
        ({"base": 500000}, 1.0),
        ({"is_neox_style": False}, 1.0),
        ({"rotary_dim": HEAD_DIM // 2}, 1.0),
        ({"scaling": {"rope_type": "linear", "factor": 4.0}}, 1.0),
        ({"scaling": LLAMA3}, 1.0),
        ({"scaling": YARN}, 0.1 * math.log(4.0) + 1),
    ],
    ids=["default", "base", "interleaved", "partial", "linear", "llama3", "yarn"],
)
def test_the_rotation_found_is_the_models_own_without_its_magnitude(asked, magnitude):
    rotary = rope(**asked)
    found = find_rope(model(Attention(rotary), Attention(rotary)), config())
    assert found.neox == rotary.is_neox_style and found.rotary_dim == rotary.rotary_dim
    positions = torch.tensor([0, 3, 500, 1900])
    table = torch.cat(found.table(positions), dim=-1) * magnitude
    torch.testing.assert_close(table, rotary.cos_sin_cache[positions], atol=2e-3, rtol=0)


@pytest.mark.parametrize(
    ("scaling", "name"),
    [
        ({"rope_type": "dynamic", "factor": 4.0}, "DynamicNTKScalingRotaryEmbedding"),
        ({"rope_type": "default", "mrope_section": [8, 12, 12]}, "MRotaryEmbedding"),
        (LONGROPE, "Phi3LongRoPEScaledRotaryEmbedding"),
    ],
    ids=["dynamic NTK", "M-RoPE", "longrope"],
)
def test_a_rotation_that_a_further_rotation_does_not_fit_is_refused_by_name(scaling, name):
    with pytest.raises(UnsupportedModel, match=f"{name}; supported are default, linear, llama3"):
        find_rope(model(Attention(rope(scaling))), config())


@pytest.mark.parametrize(
    ("layer", "reason"),
    [
        ({"sliding_window_size": 4096}, "sliding window of 4096 tokens"),
        ({"is_cross_attention": True}, "not causal self-attention"),
        ({"attn_type": AttentionType.ENCODER_ONLY}, "not causal self-attention"),
        ({"logit_cap": 30.0}, "caps its attention logits"),
        ({"use_irope": True}, "scales attention by position"),
    ],
)
def test_one_layer_that_does_not_fit_makes_the_model_refused_by_that_layer(layer, reason):
    with pytest.raises(UnsupportedModel, match=f"layers.1.attn .*{reason}"):
        find_rope(model(Attention(rope()), Attention(rope(), **layer)), config())


def test_a_layer_without_rotary_embedding_is_refused():
    for bare in (Attention(None), Attention(rope())):
        bare.use_rope = False
        with pytest.raises(UnsupportedModel, match="layers.1.attn has no rotary embedding"):
            find_rope(model(Attention(rope()), bare), config())


def test_a_layer_that_scales_its_queries_by_position_is_refused():
    layer = Attention(rope())
    layer.llama_4_scaling_beta = 0.1
    with pytest.raises(UnsupportedModel, match="scales attention by position"):
        find_rope(model(layer), config())


def test_layers_that_rotate_differently_are_refused():
    for other in (rope(base=500000), rope(is_neox_style=False), rope(rotary_dim=32)):
        with pytest.raises(UnsupportedModel, match="rotate differently"):
            find_rope(model(Attention(rope()), Attention(other)), config())


@pytest.mark.parametrize(
    ("other", "reason"),
    [
        ({"attention_arch": AttentionArch.MLA}, "MLA"),
        ({"is_encoder_decoder": True}, "cross attention"),
        ({"hf_config": Qwen3NextConfig()}, "running state"),
    ],
)
def test_an_architecture_that_does_not_fit_is_refused_with_the_reason(other, reason):
    with pytest.raises(UnsupportedModel, match=reason):
        find_rope(model(Attention(rope())), config(**other))


def test_a_model_without_attention_is_refused():
    with pytest.raises(UnsupportedModel, match="no attention layer"):
        find_rope(model(), config())


def test_a_rotary_table_in_half_precision_is_refused_with_the_remedy():
    rotary = rope(dtype=torch.bfloat16)
    with pytest.raises(UnsupportedModel, match="SGLANG_ROPE_CACHE_FP32=1"):
        find_rope(model(Attention(rotary)), config())


def test_a_table_that_the_frequencies_do_not_explain_is_refused():
    rotary = RotaryEmbedding(HEAD_DIM, HEAD_DIM, 2048, 10000, True, torch.float32)
    rotary.cos_sin_cache.add_(0.01)
    with pytest.raises(UnsupportedModel, match="differs from its frequencies"):
        find_rope(model(Attention(rotary)), config())
