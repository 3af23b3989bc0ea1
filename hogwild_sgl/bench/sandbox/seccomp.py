"""A seccomp filter that takes network, processes and the machine's controls from a process.

Written as classic BPF by hand because it must work without root and without a library:
any Linux since 3.5 on x86_64 or aarch64. The filter cannot be taken off again. A denied
call fails with EPERM, so that Python code sees an ordinary ``PermissionError``.
"""

from __future__ import annotations

import ctypes
import os
import platform
import struct

# name: (x86_64, aarch64); None where the architecture has no such call.
_DENIED: dict[str, tuple[int | None, int | None]] = {
    "socket": (41, 198),
    "execve": (59, 221),
    "execveat": (322, 281),
    "fork": (57, None),
    "vfork": (58, None),
    "tkill": (200, 130),
    "pidfd_open": (434, 434),
    "pidfd_send_signal": (424, 424),
    "pidfd_getfd": (438, 438),
    "setsid": (112, 157),
    "setpgid": (109, 154),
    "ptrace": (101, 117),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "setrlimit": (160, 164),
    "io_uring_setup": (425, 425),
    "bpf": (321, 280),
    "perf_event_open": (298, 241),
    "userfaultfd": (323, 282),
    "unshare": (272, 97),
    "setns": (308, 268),
    "mount": (165, 40),
    "umount2": (166, 39),
    "move_mount": (429, 429),
    "open_tree": (428, 428),
    "fsopen": (430, 430),
    "pivot_root": (155, 41),
    "chroot": (161, 51),
    "open_by_handle_at": (304, 265),
    "fanotify_init": (300, 262),
    "init_module": (175, 105),
    "finit_module": (313, 273),
    "delete_module": (176, 106),
    "kexec_load": (246, 104),
    "kexec_file_load": (320, 294),
    "reboot": (169, 142),
    "swapon": (167, 224),
    "swapoff": (168, 225),
    "acct": (163, 89),
    "settimeofday": (164, 170),
    "clock_settime": (227, 112),
    "adjtimex": (159, 171),
    "clock_adjtime": (305, 266),
    "sethostname": (170, 161),
    "setdomainname": (171, 162),
    "iopl": (172, None),
    "ioperm": (173, None),
    "personality": (135, 92),
    "add_key": (248, 217),
    "request_key": (249, 218),
    "keyctl": (250, 219),
    "shmget": (29, 194),
    "msgget": (68, 186),
    "semget": (64, 190),
    "mq_open": (240, 180),
}
# Calls that are judged by an argument, or answered "no such call".
_CLONE, _CLONE3 = (56, 220), (435, 435)
_KILL, _TGKILL = (62, 129), (234, 131)
_PRLIMIT = (302, 261)

_ARCHITECTURES = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}
_X32_BIT = 0x40000000
_CLONE_THREAD = 0x00010000

_LOAD = 0x20  # BPF_LD | BPF_W | BPF_ABS
_IF_EQUAL, _IF_AT_LEAST, _IF_BITS = 0x15, 0x35, 0x45
_RETURN = 0x06
_ALLOW, _KILL_PROCESS = 0x7FFF0000, 0x80000000
_EPERM, _ENOSYS = 0x00050000 | 1, 0x00050000 | 38
# struct seccomp_data: nr at 0, arch at 4, args from 16, 8 bytes each (little-endian).
_NUMBER, _ARCH = 0, 4


def _argument(index: int, high: bool = False) -> int:
    return 16 + 8 * index + (4 if high else 0)


def supported() -> bool:
    """Whether this machine's system and processor are ones the filter is written for."""
    return platform.system() == "Linux" and platform.machine() in _ARCHITECTURES


def program(machine: str, pid: int) -> bytes:
    """The filter's BPF code for one process, as an array of ``struct sock_filter``."""
    column, arch = _ARCHITECTURES[machine]
    code: list[tuple[int, int, int, int]] = []

    def add(op: int, value: int, if_true: int = 0, if_false: int = 0) -> None:
        code.append((op, if_true, if_false, value))

    def rule(number: int, *body: tuple[int, int, int, int]) -> None:
        # The body ends in a return on every path, so no jump is longer than the body.
        add(_IF_EQUAL, number, 0, len(body))
        code.extend(body)

    add(_LOAD, _ARCH)
    add(_IF_EQUAL, arch, 1, 0)
    add(_RETURN, _KILL_PROCESS)
    add(_LOAD, _NUMBER)
    if machine == "x86_64":
        # The x32 calls have numbers of their own, which the rules below do not know.
        add(_IF_AT_LEAST, _X32_BIT, 0, 1)
        add(_RETURN, _EPERM)
    for numbers in _DENIED.values():
        if numbers[column] is not None:
            rule(numbers[column], (_RETURN, 0, 0, _EPERM))
    # glibc tries clone3 first, whose flags a filter cannot read, then clone: threads only.
    rule(_CLONE3[column], (_RETURN, 0, 0, _ENOSYS))
    rule(
        _CLONE[column],
        (_LOAD, 0, 0, _argument(0)),
        (_IF_BITS, 1, 0, _CLONE_THREAD),
        (_RETURN, 0, 0, _EPERM),
        (_RETURN, 0, 0, _ALLOW),
    )
    for call in (_KILL, _TGKILL):
        rule(
            call[column],
            (_LOAD, 0, 0, _argument(0)),
            (_IF_EQUAL, 1, 0, pid),
            (_RETURN, 0, 0, _EPERM),
            (_RETURN, 0, 0, _ALLOW),
        )
    # Limits may be read (no new limit given) but not raised again, not even by root.
    rule(
        _PRLIMIT[column],
        (_LOAD, 0, 0, _argument(2)),
        (_IF_EQUAL, 0, 2, 0),
        (_LOAD, 0, 0, _argument(2, high=True)),
        (_IF_EQUAL, 1, 0, 0),
        (_RETURN, 0, 0, _EPERM),
        (_RETURN, 0, 0, _ALLOW),
    )
    add(_RETURN, _ALLOW)
    return b"".join(struct.pack("<HBBI", *instruction) for instruction in code)


class _Program(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("filter", ctypes.c_void_p)]


def restrict() -> None:
    """Puts the filter on this process and its threads to come. Raises ``OSError`` if it fails."""
    if not supported():
        raise OSError(f"no seccomp filter for {platform.system()} on {platform.machine()}")
    code = program(platform.machine(), os.getpid())
    buffer = ctypes.create_string_buffer(code, len(code))
    filter_program = _Program(len(code) // 8, ctypes.addressof(buffer))
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl.argtypes = [ctypes.c_int] + [ctypes.c_ulong] * 4
    set_no_new_privileges, set_seccomp, mode_filter = 38, 22, 2
    for arguments in (
        (set_no_new_privileges, 1, 0, 0, 0),
        (set_seccomp, mode_filter, ctypes.addressof(filter_program), 0, 0),
    ):
        if libc.prctl(*arguments) != 0:
            error = ctypes.get_errno()
            raise OSError(error, f"the kernel refused the seccomp filter: {os.strerror(error)}")
