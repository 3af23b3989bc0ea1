"""Building a C++ source into a shared library on first use, kept in the user's cache.

No torch and no Python headers are needed, only a C++17 compiler with OpenMP: a build
takes seconds, and the library outlives a change of the torch version.
"""

from __future__ import annotations

import hashlib
import logging
import os
import shlex
import shutil
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

from filelock import FileLock

from runtime_patch.errors import KernelUnavailable

logger = logging.getLogger(__name__)

HEADERS = Path(__file__).parent / "csrc"
COMPILERS = ("c++", "g++", "clang++")
# Hidden: libraries built from one source for several instruction sets must not find each
# other's functions by name.
FLAGS = ("-std=c++17", "-O3", "-fopenmp", "-fPIC", "-shared", "-fvisibility=hidden", "-Wno-psabi")


def cache_folder() -> Path:
    """Where built libraries are kept: XDG_CACHE_HOME, or ~/.cache."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "hogwild-sgl"


def find_compiler() -> list[str]:
    """The command in CXX, else the first C++ compiler on PATH."""
    if os.environ.get("CXX"):
        return shlex.split(os.environ["CXX"])
    for name in COMPILERS:
        if path := shutil.which(name):
            return [path]
    raise KernelUnavailable(
        f"no C++ compiler on PATH ({', '.join(COMPILERS)}); install one, such as the package "
        "g++, or name one in the environment variable CXX"
    )


def build(source: Path, name: str, flags: Sequence[str], headers: Sequence[Path] = ()) -> Path:
    """The library ``name`` built from ``source``, from the cache if nothing has changed.

    headers: folders, besides the source's own and ``HEADERS``, in which it finds what it
        includes.

    The cached file's name holds a hash of every file in those folders, the flags and the
    compiler's version. Processes that start together build once: the others wait.
    Raises KernelUnavailable when there is no compiler or it fails.
    """
    compiler = find_compiler()
    headers = (*headers, HEADERS)
    command = [*compiler, *FLAGS, *flags, *(f"-I{folder}" for folder in headers), str(source)]
    folder = cache_folder()
    files = [file for place in (source.parent, *headers) for file in sorted(place.iterdir())]
    target = folder / f"{name}-{_fingerprint(files, [*FLAGS, *flags], _version(compiler))}.so"
    if target.exists():
        return target
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with FileLock(target.with_suffix(".lock")):
            if not target.exists():
                _compile(command, target)
    except OSError as error:
        raise KernelUnavailable(
            f"cannot keep the built library in {folder} ({error}); "
            "set XDG_CACHE_HOME to a folder that can be written to"
        ) from error
    return target


def _version(compiler: list[str]) -> str:
    try:
        done = subprocess.run([*compiler, "--version"], capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError) as error:
        raise KernelUnavailable(
            f"the C++ compiler {shlex.join(compiler)} does not run ({error}); install one, such "
            "as the package g++, or name one that does in the environment variable CXX"
        ) from error
    return done.stdout


def _fingerprint(files: Sequence[Path], flags: Sequence[str], version: str) -> str:
    parts = [shlex.join(flags), version]
    parts += [f"{path.name}\n{path.read_text()}" for path in files]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]


def _compile(command: list[str], target: Path) -> None:
    logger.info("building %s, once for this machine: %s", target.name, shlex.join(command))
    began = time.monotonic()
    # Renamed when complete, so that a build that is killed leaves nothing to be loaded.
    unfinished = target.with_suffix(f".{os.getpid()}.tmp")
    try:
        done = subprocess.run([*command, "-o", str(unfinished)], capture_output=True, text=True)
        if done.returncode:
            raise KernelUnavailable(
                f"the C++ compiler failed: {shlex.join(command)}\n{done.stderr.strip()[-2000:]}"
            )
        unfinished.replace(target)
    finally:
        unfinished.unlink(missing_ok=True)
    logger.info("built %s in %.0f s", target.name, time.monotonic() - began)
