"""Every operator in every instruction set against PyTorch in float64."""

from __future__ import annotations

import functools
import random

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from runtime_patch.attention.cpp.kernel import supported_instruction_sets
from runtime_patch.cpu.ops import MAX_ROWS, Ops

# Of the largest element of the exact result: half a unit in the last place, and for float32
# the error of its sums.
TOLERANCE = {torch.float32: 2e-6, torch.bfloat16: 2**-8, torch.float16: 2**-11}

each_set = pytest.mark.parametrize("instruction_set", supported_instruction_sets())
each_dtype = pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
seeds = given(seed=st.integers(0, 2**32 - 1))
quick = settings(max_examples=25, deadline=None)

ops_for = functools.cache(Ops)


def draw_for(seed: int) -> random.Random:
    torch.manual_seed(seed)
    torch.set_num_threads(seed % 3 + 1)
    return random.Random(seed)


@pytest.fixture(autouse=True)
def restore_threads():
    threads = torch.get_num_threads()
    yield
    torch.set_num_threads(threads)


def assert_close(out: torch.Tensor, exact: torch.Tensor, dtype: torch.dtype) -> None:
    assert out.dtype == dtype
    assert out.shape == exact.shape
    error = (out.double() - exact).abs().max()
    assert error <= 1.1 * TOLERANCE[dtype] * exact.abs().max()


@each_set
@each_dtype
@quick
@seeds
def test_linear_is_the_matrix_product_with_bias(instruction_set, dtype, seed):
    draw, ops = draw_for(seed), ops_for(instruction_set)
    rows, outputs, depth = draw.randint(1, MAX_ROWS), draw.randint(1, 300), draw.randint(1, 700)
    x = torch.randn(rows, depth + draw.randint(0, 9)).to(dtype)[:, :depth]
    weight = torch.randn(outputs, depth).to(dtype)
    bias = draw.choice([None, torch.randn(outputs).to(dtype)])
    assert ops.takes_linear(x, weight, bias)
    exact = x.double() @ weight.double().T
    assert_close(ops.linear(x, weight, bias), exact if bias is None else exact + bias, dtype)


@each_set
@each_dtype
def test_a_row_of_linear_does_not_depend_on_the_other_rows(instruction_set, dtype):
    ops = ops_for(instruction_set)
    torch.manual_seed(1)
    weight, bias = torch.randn(130, 333).to(dtype), torch.randn(130).to(dtype)
    x = torch.randn(MAX_ROWS, 333).to(dtype)
    alone = [ops.linear(row[None], weight, bias)[0] for row in x]
    for rows in range(1, MAX_ROWS + 1):
        together = ops.linear(x[:rows], weight, bias)
        assert all(torch.equal(a, b) for a, b in zip(alone, together, strict=False))


@each_set
@each_dtype
@quick
@seeds
def test_rms_norm_is_that_of_the_unrounded_sum(instruction_set, dtype, seed):
    draw, ops = draw_for(seed), ops_for(instruction_set)
    rows, size = draw.randint(1, 400), draw.randint(1, 300)
    x = (3 * torch.randn(rows, size + draw.randint(0, 5))).to(dtype)[:, :size]
    residual = draw.choice([None, torch.randn(rows, size).to(dtype)])
    weight = torch.randn(size).to(draw.choice([dtype, torch.float32]))
    assert ops.takes_rms_norm(x, weight, residual)
    out = ops.rms_norm(x, weight, 1e-5, residual)
    exact = x.double()
    if residual is not None:
        out, total = out
        exact = exact + residual.double()
        assert_close(total, exact, dtype)
    exact = exact * torch.rsqrt(exact.square().mean(-1, keepdim=True) + 1e-5) * weight.double()
    assert_close(out, exact, dtype)


@each_set
@each_dtype
def test_rms_norm_takes_heads_as_rows(instruction_set, dtype):
    ops = ops_for(instruction_set)
    x, weight = torch.randn(5, 3, 40).to(dtype), torch.ones(40).to(dtype)
    by_head = ops.rms_norm(x, weight, 1e-6)
    assert torch.equal(by_head, ops.rms_norm(x.view(15, 40), weight, 1e-6).view(5, 3, 40))


@each_set
@each_dtype
@quick
@seeds
def test_silu_and_mul_is_exact_over_the_whole_range(instruction_set, dtype, seed):
    draw, ops = draw_for(seed), ops_for(instruction_set)
    rows, size = draw.randint(1, 200), draw.randint(1, 400)
    x = (draw.choice([0.1, 1, 10, 40]) * torch.randn(rows, 2 * size)).to(dtype)
    assert ops.takes_silu_and_mul(x)
    gate, up = x.double().chunk(2, dim=-1)
    assert_close(ops.silu_and_mul(x), gate * torch.sigmoid(gate) * up, dtype)


@each_set
def test_silu_and_mul_keeps_what_is_not_a_number(instruction_set):
    x = torch.tensor([[float("nan"), float("inf"), 1e30, -1e30, 1.0, 1.0, 1.0, 1.0]])
    out = ops_for(instruction_set).silu_and_mul(x)[0]
    assert out[0].isnan()
    assert out[1:].tolist() == [float("inf"), torch.tensor(1e30), 0.0]


@each_set
@each_dtype
@quick
@seeds
def test_rotate_turns_pairs_by_the_angle_of_their_position(instruction_set, dtype, seed):
    draw, ops = draw_for(seed), ops_for(instruction_set)
    rows, dim = draw.randint(1, 60), 2 * draw.randint(1, 48)
    half = draw.randint(1, dim // 2)
    q_heads, k_heads, neox = draw.randint(1, 5), draw.randint(1, 3), draw.random() < 0.5
    angles = torch.rand(50, half) * 6
    table = torch.cat([angles.cos(), angles.sin()], -1)
    positions = torch.randint(0, 50, (rows,))
    # As slices of one tensor, which is how models have them.
    both = torch.randn(rows, (q_heads + k_heads) * dim).to(dtype)
    q, k = both.split([q_heads * dim, k_heads * dim], dim=-1)
    before = both.double().view(rows, -1, dim)
    if draw.random() < 0.5:
        q, k = q.unflatten(-1, (q_heads, dim)), k.unflatten(-1, (k_heads, dim))
    assert ops.takes_rotate(positions, q, k, table, dim)
    ops.rotate(positions, q, k, table, dim, neox)

    cos, sin = table.double()[positions][:, None].chunk(2, dim=-1)
    turned = before.clone()
    first = slice(0, half) if neox else slice(0, 2 * half, 2)
    second = slice(half, 2 * half) if neox else slice(1, 2 * half, 2)
    turned[..., first] = before[..., first] * cos - before[..., second] * sin
    turned[..., second] = before[..., second] * cos + before[..., first] * sin
    assert_close(both.view(rows, -1, dim), turned, dtype)


@each_set
@pytest.mark.parametrize("position", [-1, 8])
def test_rotate_refuses_a_position_outside_its_table(instruction_set, position):
    q = torch.ones(1, 4)
    with pytest.raises(IndexError, match="8 rows"):
        ops_for(instruction_set).rotate(torch.tensor([position]), q, q, torch.ones(8, 4), 4, True)
    assert torch.equal(q, torch.ones(1, 4))


def test_what_is_not_covered_is_not_taken():
    x, weight = torch.ones(2, 8), torch.ones(4, 8)
    assert not Ops.takes_linear(x.double(), weight.double(), None)
    assert not Ops.takes_linear(x, weight.bfloat16(), None)
    assert not Ops.takes_linear(torch.ones(MAX_ROWS + 1, 8), weight, None)
    assert not Ops.takes_linear(torch.ones(8, 2).T, weight, None)
    assert not Ops.takes_linear(x, torch.ones(8, 4).T, None)
    assert not Ops.takes_linear(x, weight, torch.ones(4).bfloat16())
    assert not Ops.takes_rms_norm(x, torch.ones(7), None)
    assert not Ops.takes_rms_norm(x, torch.ones(8), torch.ones(2, 8).half())
    assert not Ops.takes_silu_and_mul(torch.ones(2, 8, 2)[..., 0])
    positions, q = torch.zeros(2, dtype=torch.int64), torch.ones(2, 8)
    assert not Ops.takes_rotate(positions, q, q, torch.ones(8, 4).bfloat16(), 8)
    assert not Ops.takes_rotate(positions.int(), q, q, torch.ones(8, 4), 8)
    assert not Ops.takes_rotate(positions, q, torch.ones(2, 6), torch.ones(8, 4), 8)
