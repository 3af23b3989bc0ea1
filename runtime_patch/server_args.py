"""Server arguments: what the hogwild backend needs, turns off, and refuses."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from typing import Any

from runtime_patch.versions import package_version, require_tested_sglang, sglang_version

logger = logging.getLogger(__name__)

NAME = "hogwild"


class UnsupportedSetting(ValueError):
    """A server argument that the hogwild backend cannot honour; says the remedy."""


def hogwild_is_on() -> bool:
    """Does the published configuration of this process use the hogwild tree?"""
    from sglang.srt.runtime_context import get_memory

    return get_memory().radix_cache_backend == NAME


def register_resolution() -> None:
    """Look at the arguments when SGLang has resolved them, in its own pipeline."""
    from sglang.srt.arg_groups.resolution_hooks import register_resolution_hook

    @register_resolution_hook("handle_other_validations")
    def resolve(server_args: Any, previous: Callable[[Any], None]) -> None:
        previous(server_args)
        settle(server_args)


def settle(server_args: Any) -> None:
    """Refuse what does not fit and turn off what must be off; nothing without the flags."""
    from sglang.srt.arg_groups.overrides import declare_resolution, resolving_view
    from sglang.srt.model_executor.cuda_graph_config import Backend, Phase, with_phase

    cfg = resolving_view(server_args)
    if NAME not in (cfg.attention_backend, cfg.radix_cache_backend):
        return
    require_tested_sglang()
    for refused, why in _refusals(cfg):
        if refused:
            raise UnsupportedSetting(f"hogwild: {why}")
    changed: dict[str, Any] = {}
    if not cfg.disable_overlap_schedule:
        # With overlap the next forward is planned before the last one's stops are known,
        # and the others would see a token past a step's end.
        changed["disable_overlap_schedule"] = True
        logger.info("hogwild: the overlap scheduler is turned off, views must be exact")
    if not cfg.disable_cuda_graph:
        changed["disable_cuda_graph"] = True
        for phase in (Phase.DECODE, Phase.PREFILL):
            graphs = changed.get("cuda_graph_config", cfg.cuda_graph_config)
            changed["cuda_graph_config"] = with_phase(graphs, phase, backend=Backend.DISABLED)
        logger.info("hogwild: CUDA graphs are turned off, views change shape every forward")
    if not cfg.enable_mixed_chunk:
        # A step's opening tokens ride in the same forward as the others' decode tokens.
        changed["enable_mixed_chunk"] = True
        logger.info("hogwild: mixed chunks are turned on, so that starting a step costs no forward")
    if cfg.device == "cpu" and not cfg.sleep_on_idle:
        # An idle scheduler would otherwise keep one core busy polling.
        changed["sleep_on_idle"] = True
    if cfg.device == "cpu":
        # OpenMP's threads would wait for their next work in a loop for milliseconds, on cores
        # that the server's other processes need. Read when a process loads PyTorch.
        os.environ.setdefault("GOMP_SPINCOUNT", "10000")
    if changed:
        declare_resolution(server_args, NAME, **changed)
    # SGLang rounds its cos/sin tables to the model's dtype off CUDA, which is wrong at
    # long range; must be set before the model is built.
    os.environ.setdefault("SGLANG_ROPE_CACHE_FP32", "1")
    logger.info(
        "hogwild: patch active, hogwild-sgl %s on sglang %s", package_version(), sglang_version()
    )


def _refusals(cfg: Any) -> list[tuple[bool, str]]:
    return [
        (
            cfg.attention_backend != NAME or cfg.radix_cache_backend != NAME,
            "give both --attention-backend hogwild and --radix-cache-backend hogwild "
            "(or use `hogwild serve`)",
        ),
        (
            any(
                b not in (None, NAME)
                for b in (cfg.prefill_attention_backend, cfg.decode_attention_backend)
            ),
            "prefill and decode use the same attention backend: drop "
            "--prefill-attention-backend and --decode-attention-backend",
        ),
        (cfg.disable_radix_cache, "teams live in the radix cache: drop --disable-radix-cache"),
        (
            cfg.page_size not in (None, 1),
            "steps have any length, so pages hold one token: use --page-size 1, not "
            f"{cfg.page_size}",
        ),
        (
            cfg.kv_cache_dtype not in ("auto", "bf16", "bfloat16", "fp16", "float16", "float32"),
            "a quantised KV cache is not supported yet: use --kv-cache-dtype auto, not "
            f"{cfg.kv_cache_dtype}",
        ),
        (
            cfg.allow_auto_truncate,
            "a text that is too long is refused, never cut: drop --allow-auto-truncate",
        ),
        (
            cfg.speculative_algorithm is not None,
            "speculative decoding is not supported with shared views: drop --speculative-algorithm",
        ),
        (
            cfg.disaggregation_mode != "null",
            "a team's prefill and decode share one KV pool: drop --disaggregation-mode",
        ),
        (cfg.pp_size > 1, "pipeline parallelism is not supported: use --tp-size or --dp-size"),
        (cfg.enable_dp_attention, "a team needs one attention replica: drop --enable-dp-attention"),
        (
            cfg.attn_cp_size > 1 or cfg.dcp_size > 1 or cfg.enable_prefill_cp,
            "a view is read by one rank whole: drop --attn-cp-size, --dcp-size and "
            "--enable-prefill-cp",
        ),
        (
            cfg.enable_two_batch_overlap or cfg.enable_pdmux,
            "the rows of one forward see one another: drop --enable-two-batch-overlap and "
            "--enable-pdmux",
        ),
        (cfg.dllm_algorithm is not None, "a step is written token by token: drop --dllm-algorithm"),
        (
            cfg.enable_hierarchical_cache
            or cfg.enable_lmcache
            or cfg.enable_flexkv
            or cfg.enable_hisparse
            or cfg.enable_unified_cache_external_linker,
            "a team's KV stays on the device: drop --enable-hierarchical-cache, --enable-lmcache, "
            "--enable-flexkv, --enable-hisparse and --enable-unified-cache-external-linker",
        ),
        (
            cfg.tokenizer_worker_num > 1,
            "one process keeps the teams: drop --tokenizer-worker-num",
        ),
    ]
