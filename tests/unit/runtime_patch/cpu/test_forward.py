"""A model's whole forward: in one call, operator by operator, and on PyTorch."""

from __future__ import annotations

import functools

import pytest
import torch

from runtime_patch.attention.cpp.kernel import supported_instruction_sets
from tests.unit.runtime_patch.cpu.forced_run import FORWARDS, run

TOLERANCE = 1e-4  # root mean square of logits' differences in float32; they are about 10
# Biases, norms of heads, and a scaled rotation between them.
WHOLE = ["llama3rope", "qwen2", "qwen3"]


@pytest.fixture(scope="module")
def run_of(tiny_model):
    """``run`` for a tiny model, each run made once."""

    @functools.cache
    def make(family: str, way: str, dtype: str = "float32"):
        return run(tiny_model(family), way, dtype)

    return make


@pytest.mark.parametrize("family", WHOLE)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_one_call_gives_the_same_bits_as_layer_by_layer(run_of, family, dtype):
    ours = run_of(family, "decoder", dtype)
    assert ours.whole > FORWARDS / 2
    assert ours.equal == ours.whole


@pytest.mark.parametrize("family", WHOLE)
def test_in_float32_the_operators_agree_with_pytorch(run_of, family):
    ours, stock = run_of(family, "decoder"), run_of(family, "torch")
    assert ours.linear == "FewRowsLinearMethod"
    assert stock.linear == "UnquantizedLinearMethod" and stock.whole == 0
    assert 0 < ours.error(stock) < TOLERANCE


def test_in_bfloat16_the_operators_are_as_close_to_float32_as_pytorch(run_of):
    ours = stock = 0.0
    for family in WHOLE:
        exact = run_of(family, "torch")
        ours += run_of(family, "decoder", "bfloat16").error(exact)
        stock += run_of(family, "torch", "bfloat16").error(exact)
    # The two round in different places, so either is ahead by a few percent by chance.
    assert 0 < ours < 1.08 * stock


def test_a_model_of_another_make_goes_layer_by_layer_with_the_operators(run_of):
    ours = run_of("glm4", "decoder")
    assert ours.whole == 0 and ours.linear == "FewRowsLinearMethod"
    assert 0 < ours.error(run_of("glm4", "torch")) < TOLERANCE


def test_operators_can_be_had_without_the_one_call(run_of):
    ours = run_of("qwen3", "ops")
    assert ours.whole == 0 and ours.linear == "FewRowsLinearMethod"
    assert ours.error(run_of("qwen3", "decoder")) == 0


@pytest.mark.parametrize("instruction_set", supported_instruction_sets()[1:])
def test_every_instruction_set_computes_the_same_model(tiny_model, run_of, instruction_set):
    ours = run(tiny_model("qwen3"), "decoder", environment={"HOGWILD_CPU": instruction_set})
    assert ours.equal == ours.whole > FORWARDS / 2
    assert 0 < ours.error(run_of("qwen3", "torch")) < TOLERANCE


def _change_in_place(model: torch.nn.Module) -> None:
    with torch.no_grad():
        model.model.layers[1].mlp.down_proj.weight.data.mul_(0.5)


def _put_another_in_its_stead(model: torch.nn.Module) -> None:
    weight = model.model.layers[1].mlp.down_proj.weight
    weight.data = weight.data * 0.5


@pytest.mark.parametrize("meddle", [_change_in_place, _put_another_in_its_stead])
def test_weights_that_change_are_used_at_once(tiny_model, run_of, meddle):
    ours = run(tiny_model("qwen2"), "decoder", meddle=meddle)
    assert ours.equal == ours.whole > FORWARDS / 2
    assert ours.error(run_of("qwen2", "decoder")) > 1000 * TOLERANCE


def test_without_a_compiler_everything_runs_on_pytorch(tiny_model, run_of, tmp_path):
    nothing = {"CXX": "/does/not/exist", "XDG_CACHE_HOME": str(tmp_path)}
    ours = run(tiny_model("qwen2"), "decoder", environment=nothing)
    assert ours.whole == 0 and ours.linear == "UnquantizedLinearMethod"
    assert ours.error(run_of("qwen2", "torch")) < TOLERANCE
