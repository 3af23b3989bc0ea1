import numpy as np
import pytest
import torch

from runtime_patch.attention.tiling import divide, make_tiles, merge_order
from runtime_patch.attention.triton.inputs import Inputs, Sizes, places
from tests.gpu.cases import Shape, random_plan, team_plan

CPU = torch.device("cpu")
PLAN = random_plan(4)
WORK = divide(PLAN, make_tiles(PLAN, 3), processors=16, kv_heads=2, join=True)


def filled(sizes: Sizes) -> Inputs:
    inputs = Inputs(sizes, Shape().rope(), CPU)
    inputs.fill(PLAN, WORK)
    return inputs


def test_the_inputs_are_the_plan_and_its_work():
    inputs = filled(Sizes.of(PLAN, WORK))
    assert torch.equal(inputs.slots, PLAN.slots)
    for name in ("read_row", "read_limit"):
        assert inputs[name][: len(PLAN.read_row)].tolist() == getattr(PLAN, name).tolist()
    for name in ("item_piece", "item_partial", "piece_slot", "piece_key", "piece_keys"):
        assert inputs[name][: len(getattr(WORK, name))].tolist() == getattr(WORK, name).tolist()


def test_the_angles_are_those_of_float64_at_128k_positions():
    rope = Shape().rope()
    inputs = filled(Sizes.of(PLAN, WORK))
    assert PLAN.read_delta.abs().max() > 100_000
    table = inputs["read_table"][: len(PLAN.read_row)].long()
    cos, sin = rope.table(PLAN.read_delta)
    assert torch.equal(inputs.cos[table], cos) and torch.equal(inputs.sin[table], sin)


def test_every_part_is_aligned_so_that_triton_compiles_once():
    inputs = filled(Sizes.of(PLAN, WORK))
    assert {tensor.data_ptr() % 16 for tensor in inputs._parts.values()} == {0}


def test_room_beyond_the_plan_holds_items_without_reads_and_rows_without_partials():
    inputs = filled(Sizes(rows=20, keys=900, reads=99, items=50, pieces=99, partials=200))
    assert inputs["item_partial"].diff()[WORK.items :].any().item() is False
    assert inputs["item_piece"].diff()[WORK.items :].any().item() is False
    assert inputs["merge_start"].diff()[PLAN.num_rows :].any().item() is False


def test_a_row_with_one_partial_result_goes_straight_to_the_output():
    plan = team_plan(1)
    work = divide(plan, make_tiles(plan, 3), processors=16, kv_heads=2, join=True)
    place, start = places(work, merge_order(work, plan.num_rows))
    counts = np.bincount(work.partial_row, minlength=plan.num_rows)
    assert set(counts) > {1}
    for row, count in enumerate(counts):
        mine = sorted(place[work.partial_row == row])
        assert mine == ([-1] if count == 1 else list(range(start[row], start[row + 1])))


def test_inputs_have_room_for_something():
    with pytest.raises(ValueError, match="reads is at least 1, got 0"):
        Sizes(rows=1, keys=1, reads=0, items=1, pieces=1, partials=1)
