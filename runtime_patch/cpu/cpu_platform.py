"""The class that ``platform.activate`` names; apart, because it imports SGLang."""

from __future__ import annotations

import torch
from sglang.srt.platforms.cpu import CpuDeviceMixin
from sglang.srt.platforms.device_mixin import PlatformEnum
from sglang.srt.platforms.interface import PlatformCapabilities, SRTPlatform

from runtime_patch.server_args import hogwild_is_on


class CpuPlatform(CpuDeviceMixin, SRTPlatform):
    """PyTorch on the CPU, without sgl_kernel."""

    _enum = PlatformEnum.OOT
    device_name = "cpu"
    device_type = "cpu"
    capabilities = PlatformCapabilities()

    def is_pin_memory_available(self, device=None) -> bool:
        return False

    def get_default_attention_backend(self) -> str:
        return "torch_native"

    def post_load_model(self, model: torch.nn.Module) -> None:
        if hogwild_is_on():
            from runtime_patch.cpu.start import start

            start(model)

    def get_kv_pool_cls(self, *, kind: str) -> type | None:
        if kind != "mha" or not hogwild_is_on():
            return None
        from runtime_patch.cpu.pool import HugePagePool
        from runtime_patch.cpu.start import chosen_way

        return None if chosen_way() == "torch" else HugePagePool
