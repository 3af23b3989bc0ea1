"""Looking at processes from the outside."""

from __future__ import annotations

import time
from collections.abc import Callable

import psutil


def is_running(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def wait_until(condition: Callable[[], object], seconds: float = 20.0) -> bool:
    """True as soon as the condition holds; False if it does not come to hold in time."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True
