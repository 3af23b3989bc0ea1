import pytest
import torch

from runtime_patch.attention import flashinfer_kernel, triton_kernel
from runtime_patch.attention.kernel import KernelUnavailable


@pytest.mark.parametrize("module", [triton_kernel, flashinfer_kernel])
def test_a_gpu_kernel_says_that_it_needs_a_gpu(module):
    with pytest.raises(KernelUnavailable, match="runs on cuda, not on cpu"):
        module.create(torch.device("cpu"))
