"""Which kernel runs, and what is said when one cannot."""

from __future__ import annotations

import logging

import pytest
import torch

from runtime_patch.attention import kernel as kernels
from runtime_patch.attention.kernel import check_tensors, choose
from runtime_patch.attention.plan import build_plan
from runtime_patch.attention.views import Segment, View
from runtime_patch.errors import KernelUnavailable
from tests.unit.runtime_patch.attention.cases import make_case


@pytest.fixture(autouse=True)
def nothing_forced(monkeypatch):
    monkeypatch.delenv("HOGWILD_KERNEL", raising=False)
    monkeypatch.delenv("HOGWILD_CPU", raising=False)
    kernels._warn_once.cache_clear()


@pytest.fixture
def no_compiler(monkeypatch, tmp_path):
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))


@pytest.mark.parametrize("name", ["reference", "aten", "cpp"])
def test_a_kernel_is_chosen_by_name_or_by_the_environment(name, monkeypatch):
    assert choose(name, "cpu").name == name
    monkeypatch.setenv("HOGWILD_KERNEL", name)
    assert choose(None, "cpu").name == name


def test_a_name_wins_over_the_environment(monkeypatch):
    monkeypatch.setenv("HOGWILD_KERNEL", "reference")
    assert choose("aten", "cpu").name == "aten"


def test_the_default_on_a_cpu_is_cpp():
    assert choose(None, "cpu").name == "cpp"


def test_an_unknown_name_in_the_environment_is_a_clear_error(monkeypatch):
    monkeypatch.setenv("HOGWILD_KERNEL", "cppp")
    with pytest.raises(
        ValueError, match="HOGWILD_KERNEL 'cppp' is unknown; one of reference, aten"
    ):
        choose(None, "cpu")


def test_an_unknown_name_is_a_clear_error():
    with pytest.raises(ValueError, match="kernel 'fast' is unknown"):
        choose("fast", "cpu")


@pytest.mark.parametrize("name", ["aten", "cpp"])
def test_a_cpu_kernel_refuses_another_device(name):
    with pytest.raises(KernelUnavailable, match="runs on cpu, not on cuda"):
        choose(name, "cuda")


def test_without_a_compiler_aten_serves_with_one_warning(no_compiler, caplog):
    with caplog.at_level(logging.WARNING):
        assert choose(None, "cpu").name == "aten"
        assert choose(None, "cpu").name == "aten"
    (record,) = caplog.records
    assert "slower kernel aten" in record.message
    assert "no C++ compiler on PATH" in record.message
    assert "install one" in record.message


def test_a_forced_kernel_does_not_fall_back(no_compiler):
    with pytest.raises(KernelUnavailable, match="no C\\+\\+ compiler on PATH"):
        choose("cpp", "cpu")


def test_a_device_without_kernels_is_a_clear_error():
    with pytest.raises(KernelUnavailable, match="no attention kernel for device type 'meta'"):
        choose(None, "meta")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"q": torch.zeros(2, 4, 64)}, "q is \\[1, heads, dim\\] by the plan"),
        ({"v": torch.zeros(8, 1, 64)}, "k and v are \\[slots, kv_heads, dim\\]"),
        ({"v": torch.zeros(8, 2, 64).half()}, "k and v have one dtype"),
        ({"q": torch.zeros(1, 3, 64)}, "q has 3 heads of 64, the cache 2 of 64"),
        ({"q": torch.zeros(1, 4, 32)}, "q has 4 heads of 32, the cache 2 of 64"),
        ({"k": torch.zeros(8, 2, 128)[..., ::2]}, "last dimension"),
    ],
)
def test_tensors_that_do_not_fit_are_refused(change, message):
    views = [View(1, 7, (Segment("own", torch.arange(8), 0),))]
    case = make_case(views, slots=8)
    tensors = {"q": case.q, "k": case.k, "v": case.v} | change
    with pytest.raises(ValueError, match=message):
        check_tensors(build_plan(views), **tensors, rope=case.rope)
    with pytest.raises(ValueError, match=message):
        choose("cpp", "cpu")(build_plan(views), **tensors, rope=case.rope, scale=1.0)
