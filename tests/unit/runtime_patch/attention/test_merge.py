"""Partial attention outputs merge to what softmax over all keys gives."""

from __future__ import annotations

import pytest
import torch

from runtime_patch.attention.merge import Merge


def partials(scores: torch.Tensor, values: torch.Tensor):
    """Output and log-sum-exp of ``scores [rows, heads, keys]`` over ``values [keys, dim]``."""
    return scores.softmax(-1) @ values, scores.logsumexp(-1)


@pytest.mark.parametrize("budget", [0, 1 << 24], ids=["folded one by one", "folded at the end"])
def test_partials_merge_to_softmax_over_all_keys(budget):
    torch.manual_seed(0)
    scores = torch.randn(5, 3, 40) * 10
    values = torch.randn(40, 8)
    merge = Merge(5, values, budget)
    for first, last in [(0, 1), (1, 17), (17, 40)]:
        rows = torch.randperm(5)
        out, lse = partials(scores[rows][..., first:last], values[first:last])
        merge.add(rows, out, lse)
    whole, _ = partials(scores, values)
    torch.testing.assert_close(merge.result(), whole, rtol=0, atol=2e-6)


def test_a_row_may_come_twice_in_one_partial():
    torch.manual_seed(0)
    scores, values = torch.randn(2, 1, 6), torch.randn(6, 4)
    rows = torch.tensor([0, 1, 0])
    parts = [
        partials(scores[:1, :, :2], values[:2]),
        partials(scores[1:], values),
        partials(scores[:1, :, 2:], values[2:]),
    ]
    merge = Merge(2, values)
    merge.add(rows, torch.cat([p[0] for p in parts]), torch.cat([p[1] for p in parts]))
    merge.add(torch.tensor([], dtype=torch.int64), parts[0][0][:0], parts[0][1][:0])
    torch.testing.assert_close(merge.result(), partials(scores, values)[0], rtol=0, atol=1e-6)


def test_a_single_partial_is_put_into_row_order():
    out = torch.randn(3, 2, 4)
    merge = Merge(3, out)
    merge.add(torch.tensor([2, 0, 1]), out, torch.zeros(3, 2))
    assert torch.equal(merge.result(), out[[1, 2, 0]])


def test_the_result_has_the_dtype_that_was_asked_for():
    merge = Merge(1, torch.empty(0, dtype=torch.bfloat16))
    merge.add(torch.tensor([0]), torch.ones(1, 1, 4), torch.zeros(1, 1))
    assert merge.result().dtype == torch.bfloat16
