"""Child processes that never outlive their owner."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import time
from typing import Any

import psutil

_libc: Any = ctypes.CDLL(None, use_errno=True) if sys.platform == "linux" else None
_PR_SET_PDEATHSIG = 1


def prepare_child() -> None:
    """Runs in a new child: it gets interrupts, and SIGTERM when the thread that started it dies."""
    # A job in the background of a script ignores SIGINT, which children inherit.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    if _libc is not None:
        _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


def kill_group(group: int, timeout: float = 10.0) -> None:
    """SIGKILL to the group, and wait until its members are gone."""
    try:
        os.killpg(group, signal.SIGKILL)
    except ProcessLookupError:
        return
    deadline = time.monotonic() + timeout
    while _members(group) and time.monotonic() < deadline:
        time.sleep(0.02)


def _members(group: int) -> list[int]:
    # A zombie holds nothing any more and may wait long for its reaper in a container.
    found = []
    for process in psutil.process_iter(["status"]):
        try:
            if os.getpgid(process.pid) == group and process.info["status"] != psutil.STATUS_ZOMBIE:
                found.append(process.pid)
        except (ProcessLookupError, PermissionError):
            continue
    return found
