"""Independent random streams from one master seed.

A run has one master seed. Whatever needs randomness (a team, a worker, a step, the
choice of the worker that is asked a redundancy check) names itself by a path and
derives its own seed from the master seed and that path:

    derive(master, "team", 3, "worker", 0, "step", 7)

No state is shared, so neither the order in which streams are made nor what else runs
at the same time can change what one of them yields.

The derivation, fixed for good (transcripts name their master seed and must stay
repeatable): BLAKE2b with an 8-byte digest and the personalisation ``hogwild seeds 1``
over the master seed and the path's parts, each written as a type letter (``i`` or
``s``), its length in bytes as 8 bytes little-endian, and its text in UTF-8 (integers in
decimal). Lengths and types make the encoding one-to-one: ("ab", "c") is not ("a", "bc"),
and 1 is not "1".
"""

from __future__ import annotations

import hashlib
import random

_PERSON = b"hogwild seeds 1"


def _encode(part: str | int) -> bytes:
    if isinstance(part, bool) or not isinstance(part, (int, str)):
        raise TypeError(
            f"a seed is derived from integers and texts only, got {part!r} "
            f"({type(part).__name__}); name the part by a number or a string"
        )
    letter = b"s" if isinstance(part, str) else b"i"
    # Texts read from a terminal or a file name can hold lone surrogates.
    body = str(part).encode("utf-8", "surrogatepass")
    return letter + len(body).to_bytes(8, "little") + body


def derive(master: int, *path: str | int) -> int:
    """The seed of the unit named by ``path``, in [0, 2**64).

    Two different paths share a seed with probability 2**-64. Raises ``TypeError`` for
    a master seed that is no integer, or a part that is neither integer nor text.
    """
    if isinstance(master, bool) or not isinstance(master, int):
        raise TypeError(f"the master seed must be an integer, got {master!r}")
    digest = hashlib.blake2b(digest_size=8, person=_PERSON)
    for part in (master, *path):
        digest.update(_encode(part))
    return int.from_bytes(digest.digest(), "little")


def stream(master: int, *path: str | int) -> random.Random:
    """A generator of its own for the unit named by ``path``, seeded with `derive`.

    Give each thread or task its own stream; a stream itself is not for sharing.
    """
    return random.Random(derive(master, *path))


def sampling_seed(master: int, *path: str | int) -> int:
    """`derive`, cut to [0, 2**63), the range of SGLang's ``sampling_seed`` parameter.

    SGLang reads ``sampling_seed`` only when the server runs with
    ``--enable-deterministic-inference``; otherwise it samples from one generator that
    all requests share.
    """
    return derive(master, *path) >> 1
