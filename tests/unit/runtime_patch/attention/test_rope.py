"""Rotation of queries against complex multiplication in float64."""

from __future__ import annotations

import pytest
import torch

from runtime_patch.attention.rope import Rope, rotate
from tests.unit.runtime_patch.attention.cases import make_rope, turn


@pytest.mark.parametrize("neox", [True, False], ids=["halves", "pairs"])
@pytest.mark.parametrize("rotary_dim", [16, 64])
def test_rotation_is_complex_multiplication(neox, rotary_dim):
    rope = make_rope(64, rotary_dim, neox)
    q = torch.randn(4, 3, 64, dtype=torch.float64)
    deltas = torch.tensor([0, 1, -77, 131_071])
    cos, sin = rope.table(deltas)
    turned = rotate(q.float(), cos, sin, neox)
    torch.testing.assert_close(turned.double(), turn(q, deltas, rope), rtol=0, atol=1e-6)


def test_a_delta_of_zero_changes_nothing():
    rope = make_rope(64)
    q = torch.randn(1, 2, 64)
    assert torch.equal(rotate(q, *rope.table(torch.tensor([0])), True), q)


def test_angles_are_exact_at_128k_positions():
    rope = make_rope(64)
    cos, _ = rope.table(torch.tensor([131_072]))
    exact = torch.cos(131_072.0 * rope.inv_freq)
    assert (cos[0].double() - exact).abs().max() < 1e-7
    in_float32 = torch.cos(131_072.0 * rope.inv_freq.float())
    assert (in_float32.double() - exact).abs().max() > 1e-4


def test_frequencies_in_single_precision_are_refused():
    with pytest.raises(ValueError, match="float64"):
        Rope(torch.ones(4))
