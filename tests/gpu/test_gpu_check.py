import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def run(*arguments: str) -> subprocess.CompletedProcess:
    return subprocess.run(
        [sys.executable, *arguments],
        env={**os.environ, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""},
        cwd=ROOT,
        capture_output=True,
        text=True,
    )


def test_a_dry_run_checks_the_triton_kernel_and_prints_the_table():
    done = run("bench/gpu_check.py", "--dry-run")
    assert done.returncode == 0, done.stdout + done.stderr
    lines = done.stdout.splitlines()
    checked = [line for line in lines if line.startswith("triton ")]
    assert len(checked) == 10 and all(line.endswith(" ok") for line in checked)
    assert "flashinfer not run: the flashinfer kernel runs on cuda, not on cpu" in lines
    table = [line.count("|") for line in lines if line.startswith("|")]
    assert len(table) == 4 and len(set(table)) == 1


def test_a_kernel_that_computes_wrongly_fails_the_check():
    wrong = (
        "import sys; sys.argv.append('--dry-run'); from bench import gpu_check;"
        "gpu_check.triton_kernel.LOG2_E = 1.5; sys.exit(gpu_check.main())"
    )
    done = run("-c", wrong)
    assert done.returncode == 1, done.stderr
    assert done.stdout.endswith("\nFAIL\n")


def test_without_a_gpu_it_says_what_works_here():
    done = run("bench/gpu_check.py")
    assert done.returncode == 2
    assert "no CUDA device here; --dry-run checks everything but the timing" in done.stderr


def test_it_imports_neither_sglang_nor_flashinfer_here():
    code = (
        "import sys; sys.argv.append('--dry-run'); from bench import gpu_check;"
        "assert not {'sglang', 'flashinfer'} & set(sys.modules)"
    )
    assert run("-c", code).returncode == 0
