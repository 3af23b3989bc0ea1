"""Sampling parameters of a request, looked at before they reach the scheduler."""

from __future__ import annotations

from typing import Any, get_type_hints

import msgspec
import torch

from runtime_patch.errors import TeamError


def check_sampling_params(manager: Any, given: dict[str, Any]) -> None:
    """Raise TeamError for parameters that SGLang or a team's step cannot take.

    SGLang's own checks look at values. A value of the wrong type would get past them and
    end the scheduler, which decodes by type, instead of the request."""
    kind = manager.sampling_params_class
    types = get_type_hints(kind)
    for name, value in given.items():
        if name not in types:
            raise TeamError(f"there is no sampling parameter {name!r}")
        try:
            if value is not None:
                msgspec.convert(value, types[name])
        except msgspec.ValidationError as error:
            raise TeamError(f"sampling parameter {name}: {error}") from error
    for name in ("n", "beam_width"):
        if given.get(name) not in (None, 1):
            raise TeamError(f"a step is one text: {name} must be 1, got {given[name]}")
    try:
        params = kind(**{**(manager.preferred_sampling_params or {}), **given})
        params.normalize(manager.tokenizer)
        params.verify(manager.model_config.vocab_size)
        msgspec.msgpack.encode(params)
    except Exception as error:  # also what regular expressions and big numbers raise
        raise TeamError(f"sampling_params: {error}") from error
    _check_what_tensors_hold(params)


def _check_what_tensors_hold(params: Any) -> None:
    """What SGLang takes but cannot put into its tensors, or samples nothing from."""
    from sglang.srt.sampling.sampling_params import TOP_K_ALL

    if params.top_k > TOP_K_ALL:
        raise TeamError(f"top_k must be at most {TOP_K_ALL}, or -1 for all; got {params.top_k}")
    for token, bias in (params.logit_bias or {}).items():
        if not bias <= torch.finfo(torch.float32).max:
            raise TeamError(f"logit_bias of token {token} must be a float32 number, got {bias}")
