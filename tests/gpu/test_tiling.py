import numpy as np
import pytest

from runtime_patch.attention.tiling import WAVES, Work, divide, make_tiles, merge_order
from tests.gpu.cases import random_plan, team_plan

PLANS = [random_plan(seed, longest=400) for seed in range(4)]
PLANS += [team_plan(seed, opening=opening) for seed, opening in enumerate((1, 20))]


def pairs(plan, work: Work) -> list[tuple[int, int, int]]:
    """(row, index into the plan's slots, read) of everything the work's items compute."""
    found = []
    for item in range(work.items):
        rows = work.partial_row[work.item_partial[item] : work.item_partial[item + 1]]
        for piece in range(work.item_piece[item], work.item_piece[item + 1]):
            for i, row in enumerate(rows):
                read = int(work.piece_read[piece] + i)
                assert plan.read_row[read] == row
                seen = int(plan.read_limit[read] - work.piece_key[piece])
                for key in range(min(seen, work.piece_keys[piece])):
                    found.append((int(row), int(work.piece_slot[piece]) + key, read))
    return found


@pytest.mark.parametrize("join", [True, False])
@pytest.mark.parametrize("reads_per_tile", [1, 3, 64])
@pytest.mark.parametrize("plan", PLANS)
def test_every_row_meets_every_key_it_sees_exactly_once(plan, reads_per_tile, join):
    tiles = make_tiles(plan, reads_per_tile)
    found = pairs(plan, divide(plan, tiles, processors=8, kv_heads=2, join=join))
    expected = []
    for s in range(plan.num_segments):
        for read in range(plan.read_start[s], plan.read_start[s + 1]):
            first = int(plan.segment_start[s])
            row = int(plan.read_row[read])
            expected += [(row, first + key, read) for key in range(int(plan.read_limit[read]))]
    assert sorted(found) == sorted(expected)


@pytest.mark.parametrize("processors", [1, 8, 132])
def test_no_item_has_more_than_its_share_of_the_keys(processors):
    plan = team_plan(0, published=9, prompt=600, alone=0)
    work = divide(plan, make_tiles(plan, 64), processors=processors, kv_heads=1, join=True)
    keys = np.add.reduceat(work.piece_keys, work.item_piece[:-1])
    assert keys.max() <= max(128, -(-keys.sum() // (WAVES * processors)))
    assert keys.max() <= keys.min() + 1


def test_published_steps_that_the_same_rows_read_leave_one_partial_result_per_row():
    plan = team_plan(0, workers=4, published=12, prompt=30, alone=0)
    tiles = make_tiles(plan, 64)
    joined = divide(plan, tiles, processors=1, kv_heads=64, join=True)
    apart = divide(plan, tiles, processors=1, kv_heads=64, join=False)
    assert plan.num_segments == 19
    assert len(apart.partial_row) == 4 * 19
    assert joined.partial_row.tolist() == [0, 1, 2, 3]


def test_without_join_an_item_is_one_piece_of_one_segment():
    work = divide(PLANS[0], make_tiles(PLANS[0], 3), processors=8, kv_heads=2, join=False)
    assert np.diff(work.item_piece).tolist() == [1] * work.items


def test_merge_order_lists_each_rows_partial_results():
    plan = PLANS[1]
    work = divide(plan, make_tiles(plan, 3), processors=8, kv_heads=2, join=True)
    merge = merge_order(work, plan.num_rows)
    for row in range(plan.num_rows):
        mine = merge.order[merge.start[row] : merge.start[row + 1]]
        assert mine.tolist() == np.flatnonzero(work.partial_row == row).tolist() != []


def test_an_empty_tile_is_refused():
    with pytest.raises(ValueError, match="at least one read"):
        make_tiles(PLANS[0], 0)
