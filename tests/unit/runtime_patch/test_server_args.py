"""Server arguments that the hogwild backend refuses, changes, or leaves alone."""

from __future__ import annotations

import os
from types import SimpleNamespace

import msgspec
import pytest
from sglang.srt.arg_groups import overrides
from sglang.srt.server_args import ServerArgs

from runtime_patch import server_args as settings
from runtime_patch.server_args import UnsupportedSetting, settle
from runtime_patch.versions import ALLOW_UNTESTED, UntestedSGLang


def defaults() -> dict:
    return {field.name: field.default for field in msgspec.structs.fields(ServerArgs)}


@pytest.fixture
def settled(monkeypatch):
    """Settles the default arguments with some changed; returns what the patch changed."""
    monkeypatch.setattr(overrides, "resolving_view", lambda args: args)
    changes: dict = {}
    monkeypatch.setattr(
        overrides, "declare_resolution", lambda args, who, **changed: changes.update(changed)
    )
    monkeypatch.delenv("SGLANG_ROPE_CACHE_FP32", raising=False)

    def settle_with(**given) -> dict:
        from sglang.srt.model_executor.cuda_graph_config import CudaGraphConfig

        both = {"attention_backend": "hogwild", "radix_cache_backend": "hogwild"}
        graphs = {"cuda_graph_config": CudaGraphConfig()}
        settle(SimpleNamespace(**defaults() | {"device": "cpu"} | graphs | both | given))
        return changes

    yield settle_with
    os.environ.pop("SGLANG_ROPE_CACHE_FP32", None)


@pytest.mark.parametrize(
    ("given", "remedy"),
    [
        ({"radix_cache_backend": None}, "give both .*hogwild serve"),
        ({"attention_backend": "triton"}, "give both .*hogwild serve"),
        ({"prefill_attention_backend": "fa3"}, "drop --prefill-attention-backend"),
        ({"decode_attention_backend": "triton"}, "drop .*--decode-attention-backend"),
        ({"disable_radix_cache": True}, "drop --disable-radix-cache"),
        ({"page_size": 16}, "use --page-size 1, not 16"),
        ({"kv_cache_dtype": "fp8_e4m3"}, "use --kv-cache-dtype auto, not fp8_e4m3"),
        ({"allow_auto_truncate": True}, "drop --allow-auto-truncate"),
        ({"speculative_algorithm": "EAGLE"}, "drop --speculative-algorithm"),
        ({"disaggregation_mode": "decode"}, "drop --disaggregation-mode"),
        ({"pp_size": 2}, "use --tp-size or --dp-size"),
        ({"enable_dp_attention": True}, "drop --enable-dp-attention"),
        ({"attn_cp_size": 2}, "drop --attn-cp-size"),
        ({"dcp_size": 2}, "--dcp-size"),
        ({"enable_two_batch_overlap": True}, "drop --enable-two-batch-overlap"),
        ({"dllm_algorithm": "LowConfidence"}, "drop --dllm-algorithm"),
        ({"enable_hierarchical_cache": True}, "drop --enable-hierarchical-cache"),
        ({"enable_lmcache": True}, "--enable-lmcache"),
        ({"tokenizer_worker_num": 4}, "drop --tokenizer-worker-num"),
    ],
    ids=str,
)
def test_a_setting_that_does_not_fit_is_refused_with_the_remedy(settled, given, remedy):
    with pytest.raises(UnsupportedSetting, match=f"^hogwild: .*{remedy}"):
        settled(**given)


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"page_size": 1},
        {"kv_cache_dtype": "bfloat16"},
        {"prefill_attention_backend": "hogwild"},
        {"tp_size": 2},
        {"dp_size": 2},
        {"skip_tokenizer_init": True},
    ],
    ids=str,
)
def test_what_fits_is_taken_and_what_must_change_is_changed(settled, given):
    changed = settled(**given)
    assert changed["disable_overlap_schedule"] is True and changed["disable_cuda_graph"] is True
    assert os.environ["SGLANG_ROPE_CACHE_FP32"] == "1"


def test_what_is_as_it_must_be_is_not_declared_again(settled):
    asked = {"disable_overlap_schedule": True, "disable_cuda_graph": True}
    asked |= {"enable_mixed_chunk": True, "sleep_on_idle": True}
    assert settled(**asked) == {}


def test_without_the_flags_nothing_is_looked_at_and_nothing_changes(settled, monkeypatch):
    def fail() -> None:
        raise AssertionError("looked at SGLang's version")

    monkeypatch.setattr(settings, "require_tested_sglang", fail)
    plain = {"attention_backend": "triton", "radix_cache_backend": None, "page_size": 16}
    assert settled(**plain) == {}
    assert "SGLANG_ROPE_CACHE_FP32" not in os.environ


def test_an_sglang_that_was_not_tested_stops_the_server(settled, monkeypatch):
    monkeypatch.setattr("runtime_patch.versions.sglang_version", lambda: "0.6.1")
    monkeypatch.delenv(ALLOW_UNTESTED, raising=False)
    with pytest.raises(UntestedSGLang, match=r"0\.6\.1 is installed.*HOGWILD_ALLOW_UNTESTED"):
        settled()
    monkeypatch.setenv(ALLOW_UNTESTED, "1")
    assert settled()["disable_overlap_schedule"] is True
