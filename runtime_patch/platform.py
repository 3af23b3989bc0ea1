"""An out-of-tree CPU platform, so that SGLang runs on a machine without a GPU.

SGLang's in-tree CPU path needs a CPU build of sgl_kernel or vllm. As an out-of-tree
platform every operator takes its ``forward_native``, which is plain PyTorch.
"""

from __future__ import annotations


def activate() -> str | None:
    """Entry point ``sglang.srt.platforms``: the platform's class, or None to stand aside.

    Stands aside wherever an accelerator is present: SGLang's own platforms serve it.
    """
    import torch

    if torch.cuda.is_available() or torch.xpu.is_available() or torch.mps.is_available():
        return None
    return "runtime_patch.cpu.cpu_platform.CpuPlatform"
