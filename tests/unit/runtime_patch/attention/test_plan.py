"""The plan against a naive inversion of the views."""

from __future__ import annotations

import random

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from runtime_patch.attention.plan import build_plan
from runtime_patch.attention.views import Run, Segment, View
from tests.unit.runtime_patch.attention.cases import Pool, make_rope, random_views, team_views


def expected_reads(views: list[View]) -> dict:
    """By segment key: (row, delta, limit) of each read, sorted. Straight from the definition."""
    reads: dict = {}
    row = 0
    for view in views:
        total = sum(len(segment.slots) for segment in view.segments)
        for i in range(view.rows):
            in_view, stored = total - view.rows + i, view.position + i
            start = 0
            for segment in view.segments:
                seen = min(len(segment), in_view + 1 - start)
                if seen > 0:
                    delta = (in_view - start) - (stored - segment.base)
                    reads.setdefault(segment.key, []).append((row, delta, seen))
                start += len(segment)
            row += 1
    return {key: sorted(some) for key, some in reads.items()}


@settings(max_examples=200, deadline=None)
@given(seed=st.integers(0, 2**32 - 1))
def test_a_plan_inverts_its_views(seed):
    views = random_views(random.Random(seed))
    plan = build_plan(views)
    expected = expected_reads(views)
    slots = {segment.key: segment.slots for view in views for segment in view.segments}
    assert plan.num_rows == sum(view.rows for view in views)
    assert plan.num_segments == len(expected)
    seen = set()
    for s in range(plan.num_segments):
        own = plan.slots[plan.segment_start[s] : plan.segment_start[s + 1]]
        key = next(key for key, some in slots.items() if torch.equal(some, own))
        reads = slice(plan.read_start[s], plan.read_start[s + 1])
        columns = (plan.read_row[reads], plan.read_delta[reads], plan.read_limit[reads])
        found = list(zip(*(column.tolist() for column in columns), strict=True))
        assert [row for row, _, _ in found] == [row for row, _, _ in expected[key]]
        assert sorted(found) == expected[key]
        seen.add(key)
    assert seen == set(expected)


def test_all_tensors_of_a_plan_are_contiguous_int64():
    plan = build_plan(random_views(random.Random(1)))
    for name in (
        "slots",
        "segment_start",
        "read_start",
        "read_row",
        "read_delta",
        "read_limit",
    ):
        tensor = getattr(plan, name)
        assert tensor.dtype == torch.int64 and tensor.is_contiguous(), name


def test_an_ordinary_request_is_one_segment_with_delta_zero():
    plan = build_plan([View(3, 7, (Segment("own", torch.arange(10), 0),))])
    assert plan.num_segments == 1
    assert plan.read_delta.tolist() == [0, 0, 0]
    assert plan.read_limit.tolist() == [8, 9, 10]


def test_segments_with_one_key_and_two_lengths_are_refused():
    views = [
        View(1, 4, (Segment("step", torch.arange(5), 0),)),
        View(1, 2, (Segment("step", torch.arange(6), 0), Segment("own", torch.arange(3), 0))),
    ]
    with pytest.raises(ValueError, match="'step' has two lengths in one forward"):
        build_plan(views)


def test_segments_with_one_key_and_two_bases_are_refused():
    own = [Segment(i, torch.arange(3), 0) for i in range(2)]
    views = [View(1, 2, (Segment("step", torch.arange(5), 10 * i), own[i])) for i in range(2)]
    with pytest.raises(ValueError, match="'step' has two bases in one forward"):
        build_plan(views)


@pytest.mark.parametrize("run_first", [True, False])
def test_a_segment_inside_a_run_and_by_itself_is_one_segment(run_first):
    step, own = Segment("step", torch.arange(5), 0), Segment("own", torch.arange(9, 12), 0)
    run = Run((Segment("first", torch.arange(5, 9), 0), step))
    views = [View(1, 2, (run, own)), View(1, 2, (step, own))]
    plan = build_plan(views if run_first else views[::-1])
    assert plan.num_segments == 3
    longer = Run((Segment("step", torch.arange(6), 0),))
    with pytest.raises(ValueError, match="'step' has two lengths in one forward"):
        build_plan([*views, View(1, 2, (longer, own))])


def test_a_run_leaves_out_empty_segments_and_refuses_one_key_twice():
    empty = Segment("empty", torch.arange(0), 0)
    run = Run((empty, Segment("step", torch.arange(5), 3), empty))
    assert (run.keys, run.lengths.tolist(), run.bases.tolist(), len(run)) == (["step"], [5], [3], 5)
    with pytest.raises(ValueError, match="different keys"):
        Run((*run.segments, *run.segments))


def test_a_view_ends_with_a_segment():
    run = Run((Segment("step", torch.arange(5), 0),))
    for parts in ((), (run,)):
        with pytest.raises(ValueError, match="ends with a segment"):
            View(1, 0, parts)


def test_tables_turn_each_read_by_its_delta():
    draw = random.Random(4)
    plan = build_plan(team_views(draw, Pool(4096, draw), "team", published=5))
    rope = make_rope(64)
    cos, sin, index = plan.tables(rope)
    angle = plan.read_delta.double()[:, None] * rope.inv_freq
    torch.testing.assert_close(cos[index], angle.cos().float(), rtol=0, atol=0)
    torch.testing.assert_close(sin[index], angle.sin().float(), rtol=0, atol=0)


def test_tables_are_made_once_per_rope():
    plan = build_plan(random_views(random.Random(2)))
    first, second = make_rope(64), make_rope(64, 32)
    assert plan.tables(first)[0] is plan.tables(first)[0]
    assert plan.tables(second)[0].shape[1] == 16


def test_what_a_kernel_derives_from_a_plan_is_made_once():
    plan = build_plan(random_views(random.Random(2)))
    made = []
    for _ in range(2):
        plan.cached("mine", lambda: made.append(1))
    assert made == [1]


def test_a_plan_that_was_moved_knows_the_one_it_came_from():
    plan = build_plan(random_views(random.Random(2)))
    moved = plan.to("meta")
    assert {moved.slots.device.type, moved.read_limit.device.type} == {"meta"}
    assert moved.read_limit.shape == plan.read_limit.shape
    assert moved.segment_start.shape == plan.segment_start.shape
    assert moved.host is plan and plan.host is plan
    assert plan.to("cpu") is plan


def test_a_view_whose_rows_exceed_its_last_segment_is_refused():
    with pytest.raises(ValueError, match="4 rows, but the last segment has 3 keys"):
        View(4, 0, (Segment("own", torch.arange(3), 0),))
