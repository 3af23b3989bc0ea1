"""Runs a folder of tests in a process with an environment of its own."""

import os
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent


def run_tests(folder: str, **environment: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-x", "-W", "ignore", str(HERE / folder)],
        env={**os.environ, "OMP_NUM_THREADS": "1", **environment},
        cwd=HERE.parents[1],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
    assert " passed" in done.stdout and "skipped" not in done.stdout
