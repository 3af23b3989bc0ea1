"""One forward of many rows, each over its own view, with nothing stored rotated.

Every key is kept as it was before RoPE and put at its index in the reader's view at
every read, in float64. This is section 3 of the paper word by word, and slow.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import torch

from tests.oracle.decoder import Decoder


@dataclass
class Block:
    """Tokens that stay together in every view, with their keys before RoPE.

    memory: one ``(keys, values)`` per layer, float64 ``[tokens, kv_heads, head_dim]``.
    """

    tokens: list[int] = field(default_factory=list)
    memory: dict[int, tuple[torch.Tensor, torch.Tensor]] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.tokens)

    def _append(self, layer: int, keys: torch.Tensor, values: torch.Tensor) -> None:
        if layer in self.memory:
            old_keys, old_values = self.memory[layer]
            keys, values = torch.cat([old_keys, keys]), torch.cat([old_values, values])
        self.memory[layer] = keys, values


@dataclass(frozen=True)
class Row:
    """tokens: what this row feeds; they go to the end of the view's last block.
    view: the blocks that the row reads, in order; the last is its own."""

    tokens: Sequence[int]
    view: Sequence[Block]

    def __post_init__(self) -> None:
        if not self.tokens:
            raise ValueError("a row feeds at least one token")
        if not self.view:
            raise ValueError("a row's view has at least its own block")


@torch.inference_mode()
def forward(decoder: Decoder, rows: Iterable[Row]) -> list[torch.Tensor]:
    """Run one model forward. Returns one float64 ``[fed, vocabulary]`` per row.

    In every layer all rows write their keys and values before any row attends: what
    one row feeds is visible to the others in the same forward.
    """
    rows = list(rows)
    if len({id(row.view[-1]) for row in rows}) != len(rows):
        raise ValueError("two rows of one forward write to the same block")
    hidden = [decoder.embed(list(row.tokens)) for row in rows]
    for layer in range(decoder.layers):
        queries = []
        for row, state in zip(rows, hidden, strict=True):
            query, keys, values = decoder.project(layer, state)
            row.view[-1]._append(layer, keys, values)
            queries.append(query)
        hidden = [
            decoder.finish(layer, state, _attend(decoder, layer, row.view, query))
            for row, state, query in zip(rows, hidden, queries, strict=True)
        ]
    for row in rows:
        row.view[-1].tokens.extend(row.tokens)
    return [decoder.logits(state) for state in hidden]


def _attend(
    decoder: Decoder, layer: int, view: Sequence[Block], query: torch.Tensor
) -> torch.Tensor:
    """Softmax attention of ``query [n, heads, head_dim]``, the view's last n tokens."""
    memories = [block.memory[layer] for block in view if layer in block.memory]
    keys = torch.cat([keys for keys, _ in memories])
    values = torch.cat([values for _, values in memories])
    index = torch.arange(keys.shape[0])
    own = index[-query.shape[0] :]
    group = query.shape[1] // keys.shape[1]
    keys = decoder.rotary.place(keys, index).repeat_interleave(group, dim=1)
    values = values.repeat_interleave(group, dim=1)
    scores = torch.einsum("qhd,khd->hqk", decoder.rotary.place(query, own), keys)
    scores = scores / decoder.head_dim**0.5
    hidden_keys = index[None, :] > own[:, None]
    weights = scores.masked_fill(hidden_keys, -torch.inf).softmax(dim=-1)
    return torch.einsum("hqk,khd->qhd", weights, values)
