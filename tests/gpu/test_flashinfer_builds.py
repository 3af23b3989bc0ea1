import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.gpu.own_process import run_tests


def cuda_home() -> str:
    """CUDA_HOME, or the usual place. A wrapper script on PATH does not say where it is."""
    for home in (os.environ.get("CUDA_HOME"), "/usr/local/cuda"):
        if home and (Path(home) / "bin" / "nvcc").exists():
            return home
    pytest.fail("no CUDA toolkit: set CUDA_HOME, or deselect this with -m 'not slow_build'")


@pytest.mark.slow_build
@pytest.mark.timeout(3600)
def test_the_flashinfer_kernel_builds_for_sm_80_and_sm_90a_and_its_arithmetic_runs(tmp_path):
    """Minutes when FlashInfer's cache is empty. A machine without a driver has no libcuda
    to link against; an empty one does, because nothing of it is called."""
    (tmp_path / "stub.c").write_text("void stub(void) {}\n")
    compiler = os.environ.get("CC", "cc")
    stub = [compiler, "-shared", "-fPIC", "-Wl,-soname,libcuda.so.1", "-o", "libcuda.so", "stub.c"]
    subprocess.run(stub, cwd=tmp_path, check=True)
    run_tests(
        "built",
        FLASHINFER_CUDA_ARCH_LIST="8.0 9.0a",
        FLASHINFER_EXTRA_LDFLAGS=f"-L{tmp_path}",
        CUDA_HOME=cuda_home(),
        MAX_JOBS=os.environ.get("MAX_JOBS", "2"),
        # ninja lies beside the interpreter
        PATH=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
    )
