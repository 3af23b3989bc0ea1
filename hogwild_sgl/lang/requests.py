"""From SGLang's frontend parameters to the body of a request."""

from __future__ import annotations

from typing import Any

from sglang.lang.backend.runtime_endpoint import RuntimeEndpoint
from sglang.lang.global_config import global_config
from sglang.lang.ir import SglSamplingParams

_LOGPROBS = ("return_logprob", "logprob_start_len", "top_logprobs_num")


def sampling_of(backend: RuntimeEndpoint, params: SglSamplingParams) -> dict[str, Any]:
    """``sampling_params`` of a request, as SGLang's own backend sends them."""
    backend._handle_dtype_to_regex(params)
    return {
        "skip_special_tokens": global_config.skip_special_tokens_in_output,
        "spaces_between_special_tokens": global_config.spaces_between_special_tokens_in_out,
        **params.to_srt_kwargs(),
    }


def logprobs_of(params: SglSamplingParams) -> dict[str, Any]:
    """The logprob options of a request; those that were not asked for are left out."""
    values = {name: getattr(params, name) for name in _LOGPROBS}
    return {name: value for name, value in values.items() if value is not None}


def is_constrained(params: SglSamplingParams) -> bool:
    """Does a grammar say where the text ends?"""
    return any((params.regex, params.json_schema, params.dtype))
