"""Run in Triton's interpreter by ``test_triton_interpreted.py``."""

import dataclasses

import pytest
import torch

from runtime_patch.attention.reference import Reference
from runtime_patch.attention.triton.inputs import Sizes
from runtime_patch.attention.triton.kernel import Triton, create
from tests.gpu.cases import Shape, random_plan, team_plan

CPU = torch.device("cpu")


def differ(plan, shape: Shape, kernel: Triton | None = None) -> float:
    kernel = kernel or Triton(CPU, processors=16)
    q, k, v = shape.tensors(plan.num_rows, 1000)
    rope, scale = shape.rope(), shape.dim**-0.5
    out = kernel(plan, q, k, v, rope, scale)
    assert out.dtype == q.dtype and out.shape == (plan.num_rows, shape.heads, shape.value_dim)
    exact = Reference()(plan, q.double(), k.double(), v.double(), rope, scale)
    return float((out.double() - exact).abs().max())


@pytest.mark.parametrize("seed", range(6))
def test_any_ragged_plan_gives_the_reference_output(seed):
    assert differ(random_plan(seed), Shape()) < 3e-6


@pytest.mark.parametrize("opening", [1, 3, 12])
def test_a_team_beside_ordinary_requests_gives_the_reference_output(opening):
    assert differ(team_plan(opening, opening=opening), Shape()) < 3e-6


@pytest.mark.parametrize("processors", [1, 4, 400])
def test_the_number_of_processors_does_not_change_the_result(processors):
    kernel = Triton(CPU, processors=processors)
    assert differ(random_plan(11, longest=500), Shape(), kernel) < 3e-6


@pytest.mark.parametrize(
    "change",
    [
        {"neox": False},
        {"rotary_dim": 16},
        {"rotary_dim": 8, "neox": False},
        {"dim": 24, "value_dim": 40, "rotary_dim": 24},
        {"dim": 128, "value_dim": 128, "rotary_dim": 128},
        {"heads": 2},
        {"heads": 10},
        {"heads": 71, "kv_heads": 1, "dim": 64, "rotary_dim": 64},
    ],
    ids=str,
)
def test_any_head_shape_gives_the_reference_output(change):
    plan = random_plan(3, rows=4, segments=3)
    assert differ(plan, dataclasses.replace(Shape(), **change)) < 3e-6


def test_half_precision_stays_within_its_own_rounding():
    assert differ(random_plan(5), Shape(dtype=torch.float16)) < 4e-3


def test_bfloat16_in_the_interpreter_is_refused():
    with pytest.raises(ValueError, match="interpreter multiplies bfloat16 wrongly"):
        differ(random_plan(5), Shape(dtype=torch.bfloat16))


def test_create_gives_a_kernel_that_works_here():
    assert differ(random_plan(8), Shape(), create(CPU)) < 3e-6


ROOM = Sizes(rows=8, keys=600, reads=60, items=24, pieces=50, partials=100)


def test_static_inputs_serve_one_plan_after_another_from_the_same_memory():
    kernel, shape = Triton(CPU, sizes=ROOM, processors=16), Shape()
    pointers = set()
    for seed in range(3):
        plan = random_plan(seed, rows=3 + seed)
        assert differ(plan, shape, kernel) < 3e-6
        pointers.add(kernel._static["item_piece"].data_ptr())
    assert len(pointers) == 1


def test_a_launch_recorded_with_one_plan_serves_the_next_after_prepare():
    """What a CUDA graph does: the same launch, new contents."""
    kernel, shape = Triton(CPU, sizes=ROOM, processors=16), Shape()
    rope, scale = shape.rope(), shape.dim**-0.5
    first, second = random_plan(1, rows=5), random_plan(2, rows=5)
    q, k, v = shape.tensors(5, 1000)
    kernel(first, q, k, v, rope, scale)
    kernel.prepare(second, shape.heads, k, v, rope)
    kernel._prepared = first
    out = kernel(first, q, k, v, rope, scale)
    torch.testing.assert_close(out, Reference()(second, q, k, v, rope, scale))


def test_a_plan_that_does_not_fit_static_inputs_is_refused():
    kernel = Triton(CPU, sizes=dataclasses.replace(ROOM, reads=2), processors=16)
    with pytest.raises(ValueError, match="the forward needs .*reads=.* hold"):
        differ(random_plan(1), Shape(), kernel)
