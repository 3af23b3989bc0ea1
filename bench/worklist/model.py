"""The worklist model: a small Llama, and how its weights begin."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from transformers import LlamaForCausalLM

# The first heads of the first layer begin by looking back so many tokens.
LOOK_BACK = (1, 2, 3)
THETA = 1e6
_CONSTANT = 0.1  # the first element of every embedding, to begin with
_LOGIT = 10.0  # by which a head prefers its token to the next one
_PAIRS = 6  # fastest rotations; the slow ones do not tell neighbours apart


def new_model(vocabulary: int) -> LlamaForCausalLM:
    """A Llama of 1.9 million parameters, with random weights but for three heads.

    To copy what followed a word, a model needs a head that looks one token back below one
    that looks for the same word. The second is learned in minutes once the first is there,
    and by itself the first took longer than all the rest; so it begins there. All weights
    are trained.
    """
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=vocabulary,
        hidden_size=192,
        intermediate_size=512,
        num_hidden_layers=4,
        num_attention_heads=6,
        num_key_value_heads=6,
        head_dim=32,
        max_position_embeddings=4096,
        tie_word_embeddings=True,
        # Half of a head's rotations are then too slow to matter, and can compare words.
        rope_parameters={"rope_type": "default", "rope_theta": THETA},
        bos_token_id=None,
        eos_token_id=0,
        pad_token_id=0,
        initializer_range=0.04,
    )
    model = LlamaForCausalLM(config)
    with torch.no_grad():
        # So that at first a layer adds little to the words that it sees.
        for layer in model.model.layers:
            layer.self_attn.o_proj.weight *= 0.2
            layer.mlp.down_proj.weight *= 0.2
    _look_back(model)
    return model


@torch.no_grad()
def _look_back(model: LlamaForCausalLM) -> None:
    """Queries and keys of some heads become constants, the keys turned ahead by a distance:
    so a query fits the key at that distance behind it best."""
    size, half = model.config.head_dim, model.config.head_dim // 2
    inv_freq = THETA ** (-torch.arange(half, dtype=torch.float64) / half)[:_PAIRS]
    embeddings = model.model.embed_tokens.weight
    embeddings[:, 0] = _CONSTANT
    # What the norm in front of the layer makes of the constant.
    seen = _CONSTANT / embeddings.square().mean(1).sqrt().mean().item()
    length = (_LOGIT * size**0.5 / (1 - inv_freq.cos()).sum().item()) ** 0.5 / seen
    attention = model.model.layers[0].self_attn
    for head, distance in enumerate(LOOK_BACK):
        for weight, turned in (
            (attention.q_proj.weight, 0 * inv_freq),
            (attention.k_proj.weight, distance * inv_freq),
        ):
            rows = weight[head * size : (head + 1) * size]
            rows.zero_()
            rows[:_PAIRS, 0] = length * turned.cos()
            rows[half : half + _PAIRS, 0] = length * turned.sin()
