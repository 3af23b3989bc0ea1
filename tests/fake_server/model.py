"""The scripted model: a word tokeniser, and a script instead of weights."""

from __future__ import annotations

import hashlib
import re
import threading
from collections.abc import Callable
from dataclasses import dataclass

_TOKEN = re.compile(r"\n\n|<\|\w+\|>| ?\w+|[^\w\s]|\s")
END = "<|end|>"


class Words:
    """Tokens are words, marks and blanks; ids in order of first use."""

    def __init__(self) -> None:
        self._ids: dict[str, int] = {END: 0}
        self._texts = [END]
        self._lock = threading.Lock()

    def encode(self, text: str) -> list[int]:
        return [self._id(token) for token in _TOKEN.findall(text)]

    def decode(self, ids: list[int]) -> str:
        return "".join(self._texts[i] for i in ids)

    def _id(self, token: str) -> int:
        with self._lock:
            if token not in self._ids:
                self._ids[token] = len(self._texts)
                self._texts.append(token)
            return self._ids[token]


@dataclass(frozen=True)
class Writing:
    """What a script is asked: who writes (None: a reader, or an ordinary request), its
    step's number, the text fed, and the whole text that its view holds before that."""

    worker: int | None
    number: int | None
    fed: str
    view: str
    sampling: dict


Script = Callable[[Writing], str]


def paragraphs(writing: Writing) -> str:
    """A short paragraph that depends on who writes which step; an answer for readers."""
    if writing.worker is None:
        return "42}.\n"
    count = 3 + (7 * writing.worker + 3 * (writing.number or 0)) % 5
    words = " ".join(f"w{writing.worker}s{writing.number}t{i}" for i in range(count))
    return words + ".\n\n"


def logprob(before: str, token: str) -> float:
    """Fixed, negative, and different for different tokens; liked tokens score high."""
    if token.strip() in ("yes", "blue"):
        return -0.1
    digest = hashlib.blake2b(f"{before[-8:]}|{token}".encode(), digest_size=2).digest()
    return -1.0 - int.from_bytes(digest) / 65536
