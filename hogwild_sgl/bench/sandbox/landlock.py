"""Landlock: a process gives up the file system but for what it names (Linux 5.13 on)."""

from __future__ import annotations

import ctypes
import os
import platform
import struct
from collections.abc import Sequence

_CREATE, _ADD, _RESTRICT = 444, 445, 446  # the same numbers on every architecture
_READ_FILE, _READ_DIR, _WRITE_FILE, _TRUNCATE = 1 << 2, 1 << 3, 1 << 1, 1 << 14
_FILE_RIGHTS = _READ_FILE | _WRITE_FILE | _TRUNCATE | 1  # those a single file can have
# How many file-system rights each version of the interface knows.
_RIGHTS = {1: 13, 2: 14, 3: 15, 4: 15}
_RIGHTS_SINCE_5 = 16


def version() -> int:
    """The interface version of this kernel; 0 where there is no Landlock."""
    if platform.system() != "Linux":
        return 0
    libc = ctypes.CDLL(None, use_errno=True)
    return max(0, libc.syscall(_CREATE, None, ctypes.c_size_t(0), 1))


def restrict(readable: Sequence[str], writable: Sequence[str]) -> None:
    """From now on this process can open only what lies under the named paths.

    Paths that do not exist are passed over. Files open already stay usable. Raises
    ``OSError`` where the kernel refuses. Needs ``no_new_privs`` or root.
    """
    libc = ctypes.CDLL(None, use_errno=True)

    def call(number: int, *arguments: object) -> int:
        result = libc.syscall(number, *arguments)
        if result < 0:
            error = ctypes.get_errno()
            raise OSError(error, f"Landlock: {os.strerror(error)}")
        return result

    everything = (1 << _RIGHTS.get(version(), _RIGHTS_SINCE_5)) - 1
    attributes = struct.pack("<Q", everything)
    ruleset = call(_CREATE, attributes, ctypes.c_size_t(len(attributes)), 0)
    try:
        for paths, rights in ((readable, _READ_FILE | _READ_DIR), (writable, everything)):
            for path in paths:
                if not os.path.exists(path):
                    continue
                allowed = rights if os.path.isdir(path) else rights & _FILE_RIGHTS & everything
                place = os.open(path, os.O_PATH | os.O_CLOEXEC)
                try:
                    call(_ADD, ruleset, 1, struct.pack("<Qi", allowed, place), 0)
                finally:
                    os.close(place)
        libc.prctl(38, 1, 0, 0, 0)  # PR_SET_NO_NEW_PRIVS
        call(_RESTRICT, ruleset, 0)
    finally:
        os.close(ruleset)
