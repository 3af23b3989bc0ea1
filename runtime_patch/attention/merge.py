"""Merging partial attention outputs by their log-sum-exps."""

from __future__ import annotations

import torch


class Merge:
    """Collects partial outputs of query rows and folds them together.

    A partial output over some of a row's keys, weighted by exp(lse), adds up to the
    output over all of them. Partials wait in a list until they hold ``budget`` elements,
    so that a decode step is folded in one go and a long prefill stays bounded.
    """

    def __init__(self, rows: int, like: torch.Tensor, budget: int = 1 << 24):
        self._rows = rows
        self._dtype = like.dtype
        self._compute = torch.float64 if like.dtype == torch.float64 else torch.float32
        self._budget = budget
        self._pending: list[tuple[torch.Tensor, torch.Tensor, torch.Tensor]] = []
        self._state: tuple[torch.Tensor, torch.Tensor, torch.Tensor] | None = None

    def add(self, rows: torch.Tensor, out: torch.Tensor, lse: torch.Tensor) -> None:
        """rows: int64 ``[n]``, repeats allowed; out ``[n, H, Dv]``; lse ``[n, H]``, natural."""
        self._pending.append((rows, out, lse))
        if sum(out.numel() for _, out, _ in self._pending) > self._budget:
            self._fold()

    def result(self) -> torch.Tensor:
        """``[rows, H, Dv]``; every row must have been added at least once."""
        if self._state is None and len(self._pending) == 1:
            rows, out, _ = self._pending[0]
            if rows.shape[0] == self._rows:
                return torch.empty_like(out, dtype=self._dtype).index_copy_(
                    0, rows, out.to(self._dtype)
                )
        self._fold()
        _, weight, total = self._state
        return (total / weight[..., None]).to(self._dtype)

    def _fold(self) -> None:
        if not self._pending:
            return
        rows, out, lse = (torch.cat(parts) for parts in zip(*self._pending, strict=True))
        self._pending.clear()
        out, lse = out.to(self._compute), lse.to(self._compute)
        if self._state is None:
            maximum = lse.new_full((self._rows, lse.shape[1]), -torch.inf)
            weight = torch.zeros_like(maximum)
            total = out.new_zeros(self._rows, *out.shape[1:])
        else:
            maximum, weight, total = self._state
        index = rows[:, None].expand_as(lse)
        new = maximum.scatter_reduce(0, index, lse, "amax")
        # Rows without any partial so far have -inf on both sides: their weight stays 0.
        keep = torch.where(maximum == -torch.inf, 0.0, (maximum - new).exp())
        share = (lse - new[rows]).exp()
        weight = (weight * keep).index_add_(0, rows, share)
        total = (total * keep[..., None]).index_add_(0, rows, out * share[..., None])
        self._state = (new, weight, total)
