"""Runs inside the sandboxed process: gives up its rights, then runs the given program.

Started by `hogwild_sgl.bench.sandbox.run` as ``python child.py JOB`` with the job as JSON, the
program in ``solution.py`` in the current folder, and the test's input on stdin. Imports
little, since it starts once for every test of every generated program.
"""

from __future__ import annotations

import ctypes
import json
import os
import resource
import signal
import sys
import sysconfig

# What competitive programmers take for granted; the last line gives back the built-in
# names that the others hide (pow, say).
PRELUDE = """\
from typing import *
from collections import *
from functools import *
from itertools import *
from heapq import *
from bisect import *
from math import *
import bisect, collections, copy, functools, heapq, itertools, math, operator, random, re
import string, sys
from builtins import *
"""


def _limit(job: dict) -> None:
    set_parent_death_signal = 1
    ctypes.CDLL(None).prctl(set_parent_death_signal, signal.SIGKILL, 0, 0, 0)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_AS, (job["memory_bytes"],) * 2)
    resource.setrlimit(resource.RLIMIT_CPU, (job["cpu_seconds"], job["cpu_seconds"]))
    resource.setrlimit(resource.RLIMIT_FSIZE, (job["output_bytes"],) * 2)
    resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))


def _confine(job: dict) -> None:
    # Found beside this file, which is where Python looks first for a script's imports.
    import landlock
    import seccomp

    if job["confine_files"]:
        libraries = sysconfig.get_paths()
        readable = {sys.prefix, sys.base_prefix, libraries["stdlib"], libraries["purelib"]}
        readable |= {"/usr", "/lib", "/lib64", "/etc/localtime", "/dev/urandom"}
        landlock.restrict(sorted(readable), [os.getcwd(), "/dev/null"])
    seccomp.restrict()


def _call(namespace: dict, name: str) -> str:
    """The JSON of what ``Solution().name(...)``, or the function ``name``, returns."""
    holder = namespace.get("Solution")
    function = getattr(holder(), name) if holder is not None else namespace[name]
    arguments = [json.loads(line) for line in sys.stdin.read().splitlines() if line.strip()]
    return json.dumps(function(*arguments))


def main() -> None:
    job = json.loads(sys.argv[1])
    _limit(job)
    with open("solution.py", encoding="utf-8") as file:
        code = file.read()
    _confine(job)
    sys.path.pop(0)
    sys.argv = ["solution.py"]
    sys.setrecursionlimit(50_000)
    function = job["function"]
    namespace = {"__name__": "solution" if function else "__main__"}
    exec(compile(PRELUDE, "prelude", "exec"), namespace)
    if function is None:
        exec(compile(code, "solution.py", "exec"), namespace)
        return
    # The result goes out by a way of its own, so that prints are not taken for it.
    with os.fdopen(os.dup(1), "w", encoding="utf-8") as out:
        os.dup2(2, 1)
        exec(compile(code, "solution.py", "exec"), namespace)
        out.write(_call(namespace, function))


if __name__ == "__main__":
    main()
