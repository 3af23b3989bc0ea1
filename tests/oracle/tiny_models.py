"""Tiny random models in Hugging Face format, one per family of rotary embedding.

The weights are scaled so that greedy decoding wanders: attention is sharp enough that a
moved or missing key changes the tokens, bytes that make broken text are rarely chosen,
and tokens that end a step are chosen every dozen tokens or so.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path

import torch
from safetensors.torch import save_file

from tests.oracle.tiny_tokenizer import (
    BOS,
    CHAT_END,
    CHAT_START,
    EOS,
    PAD,
    SIZE,
    STEP_ENDS,
    build_tokenizer,
    write_tokenizer,
)

LAYERS, HIDDEN, HEADS, KV_HEADS, INTERMEDIATE = 3, 96, 6, 2, 192
SHARP = 1.8  # gain of q and k: scores spread by about 3, so attention picks a few keys
STRONG = 4.0  # gain of v: what attention brings outweighs the token itself


@dataclass(frozen=True)
class Family:
    """model_type, architecture and config: what config.json says beyond the common part."""

    model_type: str
    architecture: str
    config: dict = field(default_factory=dict)
    head_dim: int = 16
    qkv_bias: bool = False
    qk_norm: bool = False
    layer_norm: bool = False
    norms_behind: bool = False  # norms behind attention and MLP, before they are added
    fused_gate: bool = False


def _scaled(**scaling: object) -> dict:
    return {"rope_scaling": scaling}


FAMILIES = {
    "llama": Family("llama", "LlamaForCausalLM"),
    "linear": Family("llama", "LlamaForCausalLM", _scaled(rope_type="linear", factor=4.0)),
    "llama3rope": Family(
        "llama",
        "LlamaForCausalLM",
        {
            "rope_theta": 500000.0,
            **_scaled(
                rope_type="llama3",
                factor=8.0,
                low_freq_factor=1.0,
                high_freq_factor=4.0,
                original_max_position_embeddings=256,
            ),
        },
    ),
    "qwen2": Family("qwen2", "Qwen2ForCausalLM", {"rope_theta": 1000000.0}, qkv_bias=True),
    "yarn": Family(
        "qwen2",
        "Qwen2ForCausalLM",
        _scaled(rope_type="yarn", factor=4.0, original_max_position_embeddings=512),
        qkv_bias=True,
    ),
    "qwen3": Family(
        "qwen3", "Qwen3ForCausalLM", {"rope_theta": 1000000.0}, head_dim=32, qk_norm=True
    ),
    # Half of each head rotates, NeoX pairs; LayerNorm with bias.
    "stablelm": Family(
        "stablelm",
        "StableLmForCausalLM",
        {"partial_rotary_factor": 0.5, "rope_pct": 0.5, "use_qkv_bias": True},
        qkv_bias=True,
        layer_norm=True,
    ),
    # Half of each head rotates, interleaved pairs.
    "glm4": Family(
        "glm4",
        "Glm4ForCausalLM",
        {"partial_rotary_factor": 0.5, "attention_bias": True},
        qkv_bias=True,
        norms_behind=True,
        fused_gate=True,
    ),
    # The whole head rotates, interleaved pairs.
    "ernie": Family("ernie4_5", "Ernie4_5_ForCausalLM", {"use_bias": False}),
}


def make_model(folder: Path, family: str = "llama", seed: int = 0, head_dim: int = 0) -> Path:
    """Write config, float32 weights and tokenizer into ``folder`` (made if missing).

    head_dim: another one than the family's; 0 keeps it.
    """
    kind = FAMILIES[family]
    size = head_dim or kind.head_dim
    if kind.layer_norm and size != HIDDEN // HEADS:
        raise ValueError(f"a {family} model's head_dim is its width over its heads")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(_config(kind, size), indent=1))
    generation = {"bos_token_id": BOS, "eos_token_id": EOS, "pad_token_id": PAD}
    (folder / "generation_config.json").write_text(json.dumps(generation))
    weights = _weights(kind, size, torch.Generator().manual_seed(seed))
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    write_tokenizer(folder)
    return folder


def _config(kind: Family, head_dim: int) -> dict:
    return {
        "architectures": [kind.architecture],
        "model_type": kind.model_type,
        "hidden_size": HIDDEN,
        "intermediate_size": INTERMEDIATE,
        "num_hidden_layers": LAYERS,
        "num_attention_heads": HEADS,
        "num_key_value_heads": KV_HEADS,
        **({} if kind.layer_norm else {"head_dim": head_dim}),
        "layer_norm_eps" if kind.layer_norm else "rms_norm_eps": 1e-5,
        "hidden_act": "silu",
        "max_position_embeddings": 2048,
        "rope_theta": 10000.0,
        "tie_word_embeddings": False,
        "torch_dtype": "float32",
        "vocab_size": SIZE,
        "bos_token_id": BOS,
        "eos_token_id": EOS,
        "pad_token_id": PAD,
        **kind.config,
    }


def _weights(kind: Family, head_dim: int, generator: torch.Generator) -> dict[str, torch.Tensor]:
    weights: dict[str, torch.Tensor] = {}

    def linear(name: str, inputs: int, outputs: int, gain: float, bias: bool = False) -> None:
        matrix = torch.randn(outputs, inputs, generator=generator)
        weights[name + ".weight"] = matrix * (gain / inputs**0.5)
        if bias:
            weights[name + ".bias"] = torch.randn(outputs, generator=generator) * 0.2

    def norm(name: str, size: int, scale: float = 1.0) -> None:
        weights[name + ".weight"] = scale * (1 + 0.1 * torch.randn(size, generator=generator))
        if kind.layer_norm:
            weights[name + ".bias"] = 0.1 * torch.randn(size, generator=generator)

    weights["model.embed_tokens.weight"] = 0.3 * torch.randn(SIZE, HIDDEN, generator=generator)
    for layer in range(LAYERS):
        at = f"model.layers.{layer}."
        norm(at + "input_layernorm", HIDDEN)
        linear(at + "self_attn.q_proj", HIDDEN, HEADS * head_dim, SHARP, kind.qkv_bias)
        linear(at + "self_attn.k_proj", HIDDEN, KV_HEADS * head_dim, SHARP, kind.qkv_bias)
        linear(at + "self_attn.v_proj", HIDDEN, KV_HEADS * head_dim, STRONG, kind.qkv_bias)
        linear(at + "self_attn.o_proj", HEADS * head_dim, HIDDEN, 1.0)
        if kind.qk_norm:
            norm(at + "self_attn.q_norm", head_dim, SHARP)
            norm(at + "self_attn.k_norm", head_dim, SHARP)
        if kind.norms_behind:
            norm(at + "post_self_attn_layernorm", HIDDEN)
            norm(at + "post_mlp_layernorm", HIDDEN, 0.5)
        norm(at + "post_attention_layernorm", HIDDEN)
        if kind.fused_gate:
            linear(at + "mlp.gate_up_proj", HIDDEN, 2 * INTERMEDIATE, 1.0)
        else:
            linear(at + "mlp.gate_proj", HIDDEN, INTERMEDIATE, 1.0)
            linear(at + "mlp.up_proj", HIDDEN, INTERMEDIATE, 1.0)
        linear(at + "mlp.down_proj", INTERMEDIATE, HIDDEN, 1.0)
    norm("model.norm", HIDDEN)
    linear("lm_head", HIDDEN, SIZE, 2.0)
    weights["lm_head.weight"] *= _loudness()[:, None]
    return weights


def _loudness() -> torch.Tensor:
    """Factor on each token's logit, ``[vocabulary]``."""
    tokenizer = build_tokenizer()
    loudness = torch.ones(SIZE)
    for token in range(SIZE):
        text = tokenizer.decode([token], skip_special_tokens=False)
        printable = text.replace("\n", "").isprintable() and "\ufffd" not in text
        if token in (PAD, BOS, CHAT_START, CHAT_END) or not printable:
            loudness[token] = 0.2
        elif text in STEP_ENDS:
            loudness[token] = 1.35
    return loudness
