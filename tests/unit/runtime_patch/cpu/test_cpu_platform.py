"""What the out-of-tree CPU platform tells SGLang."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from sglang.srt.platforms import current_platform

from runtime_patch.cpu.cpu_platform import KV_TOKENS


def test_the_device_is_a_name_as_sglang_resolves_it():
    assert current_platform.get_device(None).split(":")[0] == "cpu"


@pytest.mark.parametrize(
    ("tokens", "fraction", "resolved"),
    [(None, None, KV_TOKENS), (7, None, 7), (None, 0.5, None), (7, 0.5, 7)],
)
def test_the_kv_cache_is_sized_only_where_the_user_has_not(tokens, fraction, resolved):
    args = SimpleNamespace(max_total_tokens=tokens, mem_fraction_static=fraction)
    current_platform.apply_server_args_defaults(args)
    assert args.max_total_tokens == resolved
    assert args.mem_fraction_static == fraction
