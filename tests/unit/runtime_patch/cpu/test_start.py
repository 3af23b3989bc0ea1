"""When a model is sped up, and when it is left alone."""

from __future__ import annotations

import pytest
import sglang  # noqa: F401  first, since it looks for platforms while it is imported
import torch

from runtime_patch.cpu import cpu_platform, start


class Untouchable(torch.nn.Module):
    def modules(self):
        raise AssertionError("nothing should look into this model")


def test_without_the_hogwild_flags_models_and_pools_stay_stock(monkeypatch):
    monkeypatch.setattr(cpu_platform, "hogwild_is_on", lambda: False)
    platform = cpu_platform.CpuPlatform()
    platform.post_load_model(Untouchable())
    assert platform.get_kv_pool_cls(kind="mha") is None


def test_on_pytorch_models_and_pools_stay_stock(monkeypatch):
    monkeypatch.setattr(cpu_platform, "hogwild_is_on", lambda: True)
    monkeypatch.setenv(start.ENVIRONMENT, "torch")
    platform = cpu_platform.CpuPlatform()
    platform.post_load_model(Untouchable())
    assert platform.get_kv_pool_cls(kind="mha") is None


def test_an_unknown_way_is_refused_with_the_known_ones(monkeypatch):
    monkeypatch.setenv(start.ENVIRONMENT, "magic")
    with pytest.raises(ValueError, match="'magic' is unknown; one of decoder, ops, torch"):
        start.start(Untouchable())
