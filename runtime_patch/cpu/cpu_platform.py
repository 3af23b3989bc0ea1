"""The class that ``platform.activate`` names; apart, because it imports SGLang."""

from __future__ import annotations

import logging
from typing import Any

import torch
from sglang.srt.platforms.cpu import CpuDeviceMixin
from sglang.srt.platforms.device_mixin import PlatformEnum
from sglang.srt.platforms.interface import PlatformCapabilities, SRTPlatform

from runtime_patch.server_args import hogwild_is_on

logger = logging.getLogger(__name__)

# SGLang would otherwise turn nearly all of the machine's memory into KV.
KV_TOKENS = 32768


class CpuPlatform(CpuDeviceMixin, SRTPlatform):
    """PyTorch on the CPU, without sgl_kernel."""

    _enum = PlatformEnum.OOT
    device_name = "cpu"
    device_type = "cpu"
    capabilities = PlatformCapabilities()

    def get_device(self, device_id: int = 0) -> str:
        """``cpu``: SGLang resolves ``--device`` with it, as a name (``utils.common.get_device``).
        ``CpuDeviceMixin`` would answer with a torch.device, which has no ``split``."""
        return self.device_type

    def apply_server_args_defaults(self, server_args: Any) -> None:
        if server_args.max_total_tokens is None and server_args.mem_fraction_static is None:
            server_args.max_total_tokens = KV_TOKENS
            logger.info(
                "hogwild: the KV cache holds %d tokens; --max-total-tokens sizes it otherwise",
                KV_TOKENS,
            )

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
