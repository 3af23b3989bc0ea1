"""Ports for servers on this machine."""

from __future__ import annotations

import random
import socket
from pathlib import Path

# SGLang's further sockets are files or ports that it chooses at random and tests, but
# with data-parallel attention it counts up from the HTTP port + 233.
_DERIVED = range(233, 241)
_LOW, _HIGH = 20000, 29000


def is_free(port: int, host: str = "127.0.0.1") -> bool:
    """Could a server listen on this port now?"""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError:
            return False
    return True


def choose_port(host: str = "127.0.0.1") -> int:
    """A free port that will very likely still be free when the server listens on it.

    It lies below the range from which the kernel serves outgoing connections, because
    SGLang binds its HTTP port only after the model is loaded.
    """
    high = min(_HIGH, _ephemeral_low() - _DERIVED.stop - 1)
    for port in random.sample(range(_LOW, high), k=min(200, high - _LOW)):
        if all(is_free(each, host) for each in (port, *(port + d for d in _DERIVED))):
            return port
    raise OSError(f"no free port between {_LOW} and {high} on {host}")


def _ephemeral_low() -> int:
    try:
        return int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    except OSError:  # not Linux; 32768 and 49152 are the usual limits elsewhere
        return 32768
