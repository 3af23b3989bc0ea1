"""Concurrent attention for training: every piece sees what its writer's view showed.

In a shared cache a piece keeps the keys and values that it was given in the view of its
writer, whoever reads it later. Trained on views as plain texts, a model would read pieces that
were computed in the reader's view; they differ enough for a model to take finished steps for
live ones. So training computes plays as the engine does: keys are turned by their place in
their segment, and a query once more for every segment that it sees (section 3.2 of the paper).
It is dense and differentiable, and uses nothing of the engine.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import nn
from torch.nn import functional
from transformers import LlamaForCausalLM
from transformers.modeling_utils import AttentionInterface

from hogwild_sgl.bench.worklist.simulate import Play

NAME = "worklist"
_CHUNK = 24  # keys; a step with its header is as long
_ROWS = 128  # queries at a time


@dataclass(frozen=True)
class Places:
    """Where the n computed pieces of a play stand, and which of them each one sees.

    Keys come in chunks of one segment each, at most _CHUNK long. positions: (n,), of a piece in
    its segment. keys: (chunks, _CHUNK), indices of pieces. shift: (n, chunks), by how much
    further the query's segment begins in its view than the chunk's. hidden: (n, chunks, _CHUNK),
    True where the query does not see the key. ends: for each _ROWS queries, how many chunks they
    have to look at; those behind are written later. plain: all is one segment.
    """

    positions: torch.Tensor
    keys: torch.Tensor
    shift: torch.Tensor
    hidden: torch.Tensor
    ends: tuple[int, ...]
    plain: bool

    def __len__(self) -> int:
        return len(self.positions)

    def to(self, device: str) -> Places:
        names = ("positions", "keys", "shift", "hidden")
        return replace(self, **{name: getattr(self, name).to(device) for name in names})


def places(play: Play) -> Places:
    """The pieces lie segment by segment, as far as they were computed."""
    length = play.computed
    first, chunks, keys, parts, total = {}, {}, [], [], 0
    for segment in sorted(length):
        first[segment], begin = total, len(keys)
        for start in range(0, length[segment], _CHUNK):
            parts.append(np.arange(start, start + _CHUNK))
            keys.append(total + parts[-1].clip(max=length[segment] - 1))
        chunks[segment] = slice(begin, len(keys))
        total += length[segment]
    positions = np.concatenate([np.arange(length[segment]) for segment in sorted(length)])
    # Of a chunk's segment a query sees so many pieces, counted from the segment's beginning.
    visible = np.zeros((total, len(keys)), dtype=np.int64)
    shift = np.zeros((total, len(keys)), dtype=np.int64)
    for forward in play.forwards:
        begin = first[forward.segment]
        rows = slice(begin + forward.first, begin + forward.last)
        start = 0
        for segment, shown in forward.view:
            shift[rows, chunks[segment]] = -start
            visible[rows, chunks[segment]] = shown
            start += shown
        shift[rows] += start - forward.last
        visible[rows, chunks[forward.segment]] = positions[rows, None] + 1
    hidden = np.stack(parts) >= visible[..., None]
    ends = tuple(
        int(np.flatnonzero((~hidden[row : row + _ROWS]).any((0, 2)))[-1]) + 1
        for row in range(0, total, _ROWS)
    )
    tensors = (torch.from_numpy(array) for array in (positions, np.stack(keys), shift, hidden))
    return Places(*tensors, ends, plain=len(length) == 1)


@dataclass(frozen=True)
class Turned:
    """Places with the rotations of their shifts: cos and sin are (chunks, n, head_dim)."""

    places: Places
    cos: torch.Tensor
    sin: torch.Tensor


def turned(model: LlamaForCausalLM, some: Sequence[Places]) -> list[Turned]:
    """The rotations by which queries are turned for each chunk; the same in all layers."""
    result = []
    for one in some:
        angles = one.shift.T[..., None] * model.model.rotary_emb.inv_freq.to(one.shift.device)
        angles = torch.cat([angles, angles], -1)
        result.append(Turned(one, angles.cos(), angles.sin()))
    return result


def hidden_states(model: LlamaForCausalLM, ids: torch.Tensor, some: list[Places]) -> torch.Tensor:
    """What the last layer makes of the pieces of some plays, one behind the other: (n, hidden)."""
    positions = torch.cat([one.positions for one in some])
    return model.model(
        ids[None], position_ids=positions[None], use_cache=False, plays=turned(model, some)
    )[0][0]


def attend(
    module: nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    scaling: float,
    plays: Sequence[Turned],
    **_: object,
) -> tuple[torch.Tensor, None]:
    """transformers' attention function: (1, heads, n, size) each, to (1, n, heads, size)."""
    outputs, first = [], 0
    for play in plays:
        rows = slice(first, first + len(play.places))
        first = rows.stop
        parts = (tensor[0, :, rows] for tensor in (query, key, value))
        outputs.append(_attend(*parts, play, scaling))
    return torch.cat(outputs)[None], None


def _attend(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, play: Turned, scaling: float
) -> torch.Tensor:
    if play.places.plain:
        causal = functional.scaled_dot_product_attention
        return causal(query, key, value, is_causal=True, scale=scaling).transpose(0, 1)
    heads, n, size = query.shape
    keys, values = key[:, play.places.keys], value[:, play.places.keys]
    ahead = torch.cat([-query[..., size // 2 :], query[..., : size // 2]], -1)
    outputs = []
    for row, end in zip(range(0, n, _ROWS), play.places.ends, strict=True):
        rows = slice(row, row + _ROWS)
        cos, sin = play.cos[:end, rows].to(query.dtype), play.sin[:end, rows].to(query.dtype)
        # (heads, chunks, queries, size)
        facing = torch.addcmul(query[:, None, rows] * cos, ahead[:, None, rows], sin)
        scores = (facing @ keys[:, :end].transpose(-1, -2) * scaling).transpose(1, 2)
        scores = scores.masked_fill(play.places.hidden[rows, :end], float("-inf")).flatten(2)
        weights = scores.softmax(-1, dtype=torch.float32).to(value.dtype)
        outputs.append(weights @ values[:, :end].flatten(1, 2))
    return torch.cat(outputs, 1).transpose(0, 1)


AttentionInterface.register(NAME, attend)
