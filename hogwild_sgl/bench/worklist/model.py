"""The worklist model: a small Llama, and how its weights begin."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from transformers import LlamaForCausalLM

# Heads of the first layer begin by looking back so many tokens.
LOOK_BACK = (1, 2, 3)
THETA = 1e6
_CONSTANT = 0.1  # the first element of every embedding, to begin with
_LOGIT = 10.0  # by which a head prefers its token to the next one
_PAIRS = 6  # fastest rotations; the slow ones do not tell neighbours apart
_MATCH = 2.5  # length of the rows that compare words
_COPY = 1.0  # of what is found, into the sum of the layers


def new_model(vocabulary: int, names: Sequence[int]) -> LlamaForCausalLM:
    """A Llama of 2.5 million parameters, with random weights but for six heads.

    To copy what followed a word, a model needs a head that looks one token back, and above it
    one that looks for the same word. Together they are learned late or, by chance, early; so
    they begin there, for one to three tokens. And ``names``, the ids of the items' names, begin
    at right angles to each other and to all other words, so that many of them can be told
    apart in a sum. All weights are trained.
    """
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=vocabulary,
        hidden_size=192,
        intermediate_size=512,
        num_hidden_layers=4,
        num_attention_heads=6,
        num_key_value_heads=6,
        # Names are compared in a head's slow rotations, and 32 of them must not look alike.
        head_dim=64,
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
    code = _embed(model, names)
    _look_back(model)
    _find_and_copy(model, code)
    return model


@torch.no_grad()
def _embed(model: LlamaForCausalLM, names: Sequence[int]) -> torch.Tensor:
    """Embeddings with a constant in front, and directions (2 head_dim, hidden) by which heads
    tell words apart: the names' first."""
    embeddings = model.model.embed_tokens.weight
    size, hidden = model.config.head_dim, model.config.hidden_size
    length = embeddings.norm(dim=1).mean()
    code = torch.zeros(2 * size, hidden)
    torch.nn.init.orthogonal_(code[:, 1:])
    own = code[: len(names)]
    embeddings -= embeddings @ own.T @ own
    embeddings[names] = own
    # All of one length, for the constant to be as much of each.
    embeddings *= length / embeddings.norm(dim=1, keepdim=True).clamp(min=1e-6)
    embeddings[:, 0] = _CONSTANT
    return code


@torch.no_grad()
def _look_back(model: LlamaForCausalLM) -> None:
    """Queries and keys of some heads become constants, the keys turned ahead by a distance:
    so a query fits the key at that distance behind it best."""
    size, half = model.config.head_dim, model.config.head_dim // 2
    inv_freq = THETA ** (-torch.arange(half, dtype=torch.float64) / half)[:_PAIRS]
    embeddings = model.model.embed_tokens.weight
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


@torch.no_grad()
def _find_and_copy(model: LlamaForCausalLM, code: torch.Tensor) -> None:
    """What a head finds that looks back d tokens goes to d's own part of the sum of the layers.
    A head of the next layer then looks for a token that has the same word d tokens before it
    as its own has d - 1 before, and adds the embedding of what it finds."""
    size, hidden = model.config.head_dim, model.config.hidden_size
    lower, upper = (layer.self_attn for layer in model.model.layers[:2])
    parts = torch.nn.init.orthogonal_(torch.empty(hidden, hidden)).split(size)
    own = model.model.embed_tokens.weight.norm(dim=1).mean() / size**0.5
    # Slow rotations: words at any distance can be compared in them.
    half = size // 2
    slow = torch.cat([torch.arange(half // 2, half), torch.arange(half // 2, half) + half])
    names, others = code.split(size)
    behind = names  # what stands d - 1 tokens before a token, as the upper layer reads it
    for head, part in enumerate(parts[: len(LOOK_BACK)]):
        rows = slice(head * size, (head + 1) * size)
        lower.v_proj.weight[rows], upper.v_proj.weight[rows] = names, others
        lower.o_proj.weight[:, rows] = own * part.T
        upper.o_proj.weight[:, rows] = _COPY * others.T
        upper.q_proj.weight[head * size + slow] = _MATCH * behind[: len(slow)]
        upper.k_proj.weight[head * size + slow] = _MATCH * part[: len(slow)]
        behind = part
