"""Every CPU kernel against the dense oracle and against the reference."""

from __future__ import annotations

import random

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from runtime_patch.attention.kernel import choose
from runtime_patch.attention.views import Segment, View
from tests.unit.runtime_patch.attention.cases import (
    TOLERANCE,
    Pool,
    make_case,
    make_rope,
    random_views,
    team_views,
)

DTYPES = [torch.float32, torch.float16, torch.bfloat16]
KERNELS = ["reference", "aten", "cpp"]

each_kernel = pytest.mark.parametrize("name", KERNELS)
each_dtype = pytest.mark.parametrize("dtype", DTYPES, ids=str)


def assert_exact(case, name: str) -> None:
    out = case.run(choose(name, "cpu"))
    assert out.dtype == case.q.dtype
    assert out.shape == (*case.q.shape[:2], case.v.shape[2])
    assert case.error(out) < TOLERANCE[case.q.dtype]


@each_kernel
@each_dtype
@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 2**32 - 1))
def test_random_batches_agree_with_the_oracle(name, dtype, seed):
    draw = random.Random(seed)
    views = random_views(draw)
    kv_heads, group = draw.choice([1, 2, 3]), draw.choice([1, 3, 4, 7])
    dim = draw.choice([32, 64, 80])
    case = make_case(
        views,
        slots=4096,
        dtype=dtype,
        heads=kv_heads * group,
        kv_heads=kv_heads,
        dim=dim,
        value_dim=draw.choice([dim, dim, 32, 96]),
        rope=make_rope(dim, draw.choice([dim, dim, dim // 2]), draw.random() < 0.5),
        seed=seed,
    )
    assert_exact(case, name)


@each_kernel
@each_dtype
@pytest.mark.parametrize("group", [1, 3, 4, 7])
def test_any_group_size_agrees_with_the_oracle(name, dtype, group):
    views = team_views(random.Random(group), Pool(2048, random.Random(0)), "team")
    assert_exact(make_case(views, slots=2048, dtype=dtype, heads=2 * group), name)


@each_kernel
@each_dtype
@pytest.mark.parametrize("dim", [32, 64, 80, 96, 128, 256])
def test_any_head_dimension_agrees_with_the_oracle(name, dtype, dim):
    views = team_views(random.Random(dim), Pool(2048, random.Random(0)), "team")
    assert_exact(make_case(views, slots=2048, dtype=dtype, dim=dim), name)


@each_kernel
@each_dtype
@pytest.mark.parametrize("value_dim", [24, 32, 64, 128, 192])
def test_values_may_be_narrower_or_wider_than_keys(name, dtype, value_dim):
    views = team_views(random.Random(value_dim), Pool(2048, random.Random(0)), "team")
    assert_exact(make_case(views, slots=2048, dtype=dtype, value_dim=value_dim), name)


@each_kernel
@each_dtype
@pytest.mark.parametrize("neox", [True, False], ids=["halves", "pairs"])
@pytest.mark.parametrize("rotary_dim", [8, 20, 40, 80])
def test_partial_rotary_in_both_pairings_agrees_with_the_oracle(name, dtype, neox, rotary_dim):
    views = team_views(random.Random(rotary_dim), Pool(2048, random.Random(0)), "team")
    rope = make_rope(80, rotary_dim, neox)
    assert_exact(make_case(views, slots=2048, dtype=dtype, dim=80, rope=rope), name)


@each_kernel
@each_dtype
def test_many_published_steps_agree_with_the_oracle(name, dtype):
    draw = random.Random(3)
    views = team_views(draw, Pool(8192, draw), "team", workers=4, published=120)
    assert_exact(make_case(views, slots=8192, dtype=dtype, heads=9, kv_heads=3), name)


@each_kernel
@each_dtype
def test_a_long_prompt_and_a_long_step_agree_with_the_oracle(name, dtype):
    draw = random.Random(5)
    views = team_views(draw, Pool(8192, draw), "team", longest=3000, workers=3, published=1)
    assert_exact(make_case(views, slots=8192, dtype=dtype, heads=3, kv_heads=1), name)


@each_kernel
@each_dtype
@pytest.mark.parametrize("cached", [0, 700])
def test_a_long_prefill_agrees_with_the_oracle(name, dtype, cached):
    slots = Pool(2048, random.Random(0)).take(cached + 300)
    views = [View(300, cached, (Segment("own", slots, 0),))]
    assert_exact(make_case(views, slots=2048, dtype=dtype), name)


@each_kernel
@each_dtype
def test_a_batch_of_ordinary_decode_rows_agrees_with_the_oracle(name, dtype):
    pool = Pool(4096, random.Random(0))
    lengths = [1, 2, 63, 64, 65, 300, 257, 1025]
    segments = [Segment(i, pool.take(n), 0) for i, n in enumerate(lengths)]
    views = [View(1, len(segment) - 1, (segment,)) for segment in segments]
    assert_exact(make_case(views, slots=4096, dtype=dtype, heads=9, kv_heads=3), name)


@each_kernel
def test_a_position_far_beyond_the_context_is_rotated_exactly(name):
    pool = Pool(256, random.Random(0))
    far = Segment("far", pool.take(100), 131_000)
    near = Segment("near", pool.take(50), 0)
    case = make_case([View(2, 48, (far, near))], slots=256, dtype=torch.float32)
    assert_exact(case, name)


@each_kernel
@each_dtype
def test_a_strided_cache_gives_the_same_as_a_dense_one(name, dtype):
    draw = random.Random(11)
    case = make_case(random_views(draw), slots=4096, dtype=dtype, heads=6, kv_heads=3)
    both = torch.stack([case.k, case.v], dim=2)
    out = case.run(choose(name, "cpu"))
    strided = type(case)(case.views, case.q, both[:, :, 0], both[:, :, 1], case.rope, case.scale)
    assert strided.k.stride(1) == 2 * 64
    torch.testing.assert_close(strided.run(choose(name, "cpu")), out, rtol=0, atol=0)


@each_kernel
def test_huge_scores_do_not_overflow(name):
    draw = random.Random(13)
    case = make_case(random_views(draw), slots=4096, dtype=torch.float32)
    case.q.mul_(100)
    out = case.run(choose(name, "cpu"))
    assert out.isfinite().all()
    assert case.error(out) < 1e-3  # a score of 600 has a last bit of 6e-5


@each_kernel
def test_slots_outside_the_views_are_never_read(name):
    draw = random.Random(17)
    views = random_views(draw)
    case = make_case(views, slots=4096, dtype=torch.float32)
    used = torch.cat([segment.slots for view in views for segment in view.segments]).unique()
    free = torch.ones(4096, dtype=torch.bool)
    free[used] = False
    case.k[free] = torch.nan
    case.v[free] = torch.nan
    assert case.error(case.run(choose(name, "cpu"))) < TOLERANCE[torch.float32]


@each_kernel
def test_a_key_behind_a_row_is_not_seen(name):
    slots = torch.arange(64)
    case = make_case([View(40, 24, (Segment("own", slots, 0),))], slots=64)
    kernel = choose(name, "cpu")
    before = case.run(kernel)
    case.k[-1] = 1e4
    case.v[-1] = 1e4
    after = case.run(kernel)
    torch.testing.assert_close(after[:-1], before[:-1], rtol=0, atol=1e-6)
    assert (after[-1] - before[-1]).abs().max() > 1


def test_the_reference_computes_float64_queries_in_float64():
    case = make_case(random_views(random.Random(19)), slots=4096, dtype=torch.float64)
    assert_exact(case, "reference")
    # Without rotation, which has float32 tables, nothing is left but float64's own error.
    plain = [View(3, 7, (Segment("own", torch.arange(10), 0),))]
    case = make_case(plain, slots=16, dtype=torch.float64)
    assert case.error(case.run(choose("reference", "cpu"))) < 1e-14
