"""A model's whole forward: in one call, operator by operator, and on PyTorch."""

from __future__ import annotations

import functools

import pytest
import torch

from runtime_patch.attention.cpp import supported_instruction_sets
from tests.cpu.forced_run import run

WHOLE = ["llama", "qwen2", "qwen3", "llama3rope", "yarn", "linear"]
LAYERED = ["glm4", "stablelm"]
TOLERANCE = 1e-4  # on logits in float32

every_family = pytest.mark.parametrize("family", WHOLE)


@pytest.fixture(scope="module")
def run_of(tiny_model):
    """``run`` for a tiny model, each run made once."""

    @functools.cache
    def make(family: str, way: str, dtype: str = "float32"):
        return run(tiny_model(family), way, dtype)

    return make


@every_family
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_one_call_gives_the_same_bits_as_one_operator_after_the_other(run_of, family, dtype):
    whole, layered = run_of(family, "decoder", dtype), run_of(family, "ops", dtype)
    assert whole.whole and not layered.whole
    assert whole.equals(layered)


@pytest.mark.parametrize("family", [*WHOLE, *LAYERED])
def test_in_float32_the_operators_agree_with_pytorch(run_of, family):
    ours, stock = run_of(family, "decoder"), run_of(family, "torch")
    assert ours.linear == "FewRowsLinearMethod"
    assert stock.linear == "UnquantizedLinearMethod"
    assert 0 < ours.error(stock) < TOLERANCE


@every_family
def test_in_bfloat16_the_operators_are_no_further_from_float32_than_pytorch(run_of, family):
    exact = run_of(family, "torch")
    ours = run_of(family, "decoder", "bfloat16").error(exact)
    assert 0 < ours <= 1.05 * run_of(family, "torch", "bfloat16").error(exact)


@pytest.mark.parametrize("family", LAYERED)
def test_a_model_of_another_make_goes_layer_by_layer(run_of, family):
    assert not run_of(family, "decoder").whole


@pytest.mark.parametrize("instruction_set", supported_instruction_sets()[1:])
def test_every_instruction_set_computes_the_same_model(tiny_model, run_of, instruction_set):
    ours = run(tiny_model("qwen3"), "decoder", environment={"HOGWILD_CPU": instruction_set})
    assert ours.whole
    assert 0 < ours.error(run_of("qwen3", "torch")) < TOLERANCE


def _change_in_place(model: torch.nn.Module) -> None:
    with torch.no_grad():
        model.model.layers[1].mlp.down_proj.weight.data.mul_(0.5)


def _put_another_in_its_stead(model: torch.nn.Module) -> None:
    weight = model.model.layers[1].mlp.down_proj.weight
    weight.data = weight.data * 0.5


@pytest.mark.parametrize("meddle", [_change_in_place, _put_another_in_its_stead])
def test_weights_that_change_are_used_at_once(tiny_model, run_of, meddle):
    ours = run(tiny_model("llama"), "decoder", meddle=meddle)
    stock = run(tiny_model("llama"), "torch", meddle=_change_in_place)
    assert ours.whole
    assert ours.error(stock) < TOLERANCE
    assert ours.error(run_of("llama", "decoder")) > 100 * TOLERANCE


def test_without_a_compiler_everything_runs_on_pytorch(tiny_model, run_of, tmp_path):
    nothing = {"CXX": "/does/not/exist", "XDG_CACHE_HOME": str(tmp_path)}
    ours = run(tiny_model("llama"), "decoder", environment=nothing)
    assert not ours.whole and ours.linear == "UnquantizedLinearMethod"
    assert ours.error(run_of("llama", "torch")) < TOLERANCE
