import pytest
import torch

from runtime_patch.attention.flashinfer import kernel as flashinfer_kernel
from runtime_patch.attention.triton import kernel as triton_kernel
from runtime_patch.errors import KernelUnavailable


@pytest.mark.parametrize("module", [triton_kernel, flashinfer_kernel])
def test_a_gpu_kernel_says_that_it_needs_a_gpu(module):
    with pytest.raises(KernelUnavailable, match="runs on cuda, not on cpu"):
        module.create(torch.device("cpu"))
