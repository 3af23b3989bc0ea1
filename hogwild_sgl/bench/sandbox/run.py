"""One run of a generated program in a process that can do little harm.

What holds, and by what:

- network, other processes, the machine's controls: a seccomp filter (required);
- files: Landlock, where the kernel has it: the program reads Python and the system's
  libraries and writes only to an empty folder that is deleted afterwards. Without
  Landlock it can read and write whatever the user can; `barriers` says so;
- time: a wall clock kept by the parent, and RLIMIT_CPU;
- memory, size of output, open files: RLIMIT_AS, RLIMIT_FSIZE, RLIMIT_NOFILE.

A program is only ever given its input. The expected output stays with the caller.
This is meant for mistakes and mischief of a language model, not for a determined
attacker with a kernel exploit: run those in a virtual machine.
"""

from __future__ import annotations

import json
import math
import platform
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from hogwild_sgl.bench.sandbox import landlock, seccomp

_CHILD = Path(__file__).with_name("child.py")
_STDERR_BYTES = 2000
OUTCOMES = ("ok", "error", "time", "memory", "output")


class SandboxUnavailable(RuntimeError):
    """This machine cannot keep generated code from the network."""


@dataclass(frozen=True)
class Limits:
    """seconds: wall clock (CPU time is bounded by the same, rounded up); bytes of address
    space; bytes of each file and stream written."""

    seconds: float = 6.0
    memory_bytes: int = 4 << 30
    output_bytes: int = 16 << 20

    def __post_init__(self) -> None:
        if not 0 < self.seconds < math.inf:
            raise ValueError(f"the time limit must be a positive number, got {self.seconds}")
        if self.memory_bytes < 64 << 20:
            raise ValueError(
                f"Python itself needs 64 MiB; the memory limit is {self.memory_bytes} bytes"
            )
        if self.output_bytes < 1:
            raise ValueError(f"the output limit must be positive, got {self.output_bytes}")


@dataclass(frozen=True)
class Outcome:
    """What one run came to: ``outcome`` is one of `OUTCOMES`; ``detail`` the end of stderr.

    ``stdout`` holds what a program printed, or the JSON of what a function returned.
    """

    outcome: str
    stdout: str
    detail: str
    seconds: float

    def __post_init__(self) -> None:
        if self.outcome not in OUTCOMES:
            raise ValueError(f"an outcome is one of {OUTCOMES}, got {self.outcome!r}")


def barriers() -> dict[str, str]:
    """What keeps generated code in on this machine, in words, for reports."""
    found = landlock.version()
    return {
        "network": "seccomp" if seccomp.supported() else "none: programs are not run",
        "files": f"Landlock {found}" if found else "not confined (no Landlock in this kernel)",
        "time and memory": "wall clock and rlimits",
    }


def run(
    code: str, stdin: str, function: str | None = None, limits: Limits | None = None
) -> Outcome:
    """Runs ``code`` with ``stdin`` as its input.

    With ``function`` the program is a module: the function of that name, a method of its
    class ``Solution`` if it has one, is called with one JSON argument per line of stdin.
    Raises `SandboxUnavailable` where the network cannot be barred.
    """
    limits = limits or Limits()
    if not seccomp.supported():
        raise SandboxUnavailable(
            "generated code is only run behind a seccomp filter, which needs Linux on x86_64 or "
            f"aarch64; this is {platform.system()} on {platform.machine()}. Grade on such a "
            "machine (a container will do): transcripts keep the code"
        )
    job = {
        "function": function,
        "cpu_seconds": math.ceil(limits.seconds),
        "memory_bytes": limits.memory_bytes,
        "output_bytes": limits.output_bytes,
        "confine_files": landlock.version() > 0,
    }
    with tempfile.TemporaryDirectory(prefix="hogwild-code-") as place:
        folder = Path(place, "cwd")
        folder.mkdir()
        (folder / "solution.py").write_text(code, encoding="utf-8", errors="replace")
        stdin_path, out_path, error_path = (Path(place, n) for n in ("stdin", "stdout", "stderr"))
        stdin_path.write_text(stdin, encoding="utf-8")
        began = time.monotonic()
        with (
            stdin_path.open("rb") as stdin_file,
            out_path.open("wb") as out_file,
            error_path.open("wb") as error_file,
        ):
            process = subprocess.Popen(
                [sys.executable, "-s", "-B", str(_CHILD), json.dumps(job)],
                cwd=folder,
                # Nothing of the user's environment: it may hold keys.
                env={
                    "LANG": "C.UTF-8",
                    "HOME": str(folder),
                    "OMP_NUM_THREADS": "1",
                    "PYTHONHASHSEED": "0",
                },
                stdin=stdin_file,
                stdout=out_file,
                stderr=error_file,
                start_new_session=True,
            )
            try:
                process.wait(timeout=limits.seconds)
                late = False
            except subprocess.TimeoutExpired:
                late = True
            finally:
                process.kill()
                process.wait()
        seconds = time.monotonic() - began
        stdout = out_path.read_bytes().decode("utf-8", "replace")
        detail = error_path.read_bytes()[-_STDERR_BYTES:].decode("utf-8", "replace").strip()
    return Outcome(_outcome(process.returncode, late, detail), stdout, detail, seconds)


def _outcome(code: int, late: bool, detail: str) -> str:
    last = detail.rsplit("\n", 1)[-1]
    if late or -code in (24, 9):  # SIGXCPU, or SIGKILL at the hard limit of CPU time
        return "time"
    if code == 0:
        return "ok"
    if last.startswith("MemoryError"):
        return "memory"
    if "File too large" in last:
        return "output"
    return "error"
