"""The worklist task: named sums, one worked line each, and a last line that needs them all.

    Sums: fox 27 58; owl 12 31.
    fox 27 58: 7 + 8 = 15, 2 + 5 + 1 = 8, 85.
    owl 12 31: 2 + 1 = 3, 1 + 3 = 4, 43.
    All done: smallest 43, largest 85.

The sums are in no order: whoever writes picks one that nobody has done or is doing. A line
repeats its item word by word, which a small model learns soon (to find the item again and
take its digits from there, it needed many times as long).
"""

from __future__ import annotations

import random
import zlib
from dataclasses import dataclass
from enum import StrEnum

from hogwild_sgl.worklist.words import ITEM_NAMES

_TEST_SHARE = 5  # one pair of numbers in so many is kept for tests


class Split(StrEnum):
    """Pairs of numbers of the two splits do not overlap."""

    TRAIN = "train"
    TEST = "test"


@dataclass(frozen=True)
class Item:
    """A named sum of two numbers of two digits, whose result has two digits."""

    name: str
    left: int
    right: int

    def __post_init__(self) -> None:
        if self.name not in ITEM_NAMES:
            raise ValueError(f"{self.name!r} is not the name of an item")
        if min(self.left, self.right) < 10 or self.result > 99:
            raise ValueError(f"not a sum of two-digit numbers below 100: {self.question}")

    @property
    def question(self) -> str:
        return f"{self.name} {self.left} {self.right}"

    @property
    def result(self) -> int:
        return self.left + self.right

    def line(self) -> str:
        """The worked line: units, tens with the carry, result."""
        (tens, units), (more_tens, more_units) = divmod(self.left, 10), divmod(self.right, 10)
        carry, _ = divmod(units + more_units, 10)
        carried = " + 1" if carry else ""
        return (
            f" {self.question}: {units} + {more_units} = {units + more_units},"
            f" {tens} + {more_tens}{carried} = {tens + more_tens + carry}, {self.result}."
        )


@dataclass(frozen=True)
class Task:
    """A list of items with different names."""

    items: tuple[Item, ...]

    def __post_init__(self) -> None:
        if not self.items or len({item.name for item in self.items}) < len(self.items):
            raise ValueError("a task has at least one item, and their names differ")

    @property
    def prompt(self) -> str:
        return "Sums: " + "; ".join(item.question for item in self.items) + "."

    def final(self) -> str:
        results = [item.result for item in self.items]
        return f" All done: smallest {min(results)}, largest {max(results)}."

    def item(self, name: str) -> Item | None:
        return next((item for item in self.items if item.name == name), None)


def split_of(left: int, right: int) -> Split:
    """Which split a pair of numbers belongs to, in either order."""
    pair = f"{min(left, right)}+{max(left, right)}".encode()
    return Split.TEST if zlib.crc32(pair) % _TEST_SHARE == 0 else Split.TRAIN


_PAIRS = {
    split: [
        (left, right)
        for left in range(10, 90)
        for right in range(10, 100 - left)
        if split_of(left, right) is split
    ]
    for split in Split
}


def draw_task(rng: random.Random, items: int, split: Split) -> Task:
    """A task of ``items`` items, with numbers of one split."""
    names = rng.sample(ITEM_NAMES, items)
    return Task(tuple(Item(name, *rng.choice(_PAIRS[split])) for name in names))


def task_of(prompt: str) -> Task:
    """The task of a prompt as :attr:`Task.prompt` writes it. ValueError says what is wrong."""
    body = prompt.strip()
    if not (body.startswith("Sums: ") and body.endswith(".")):
        raise ValueError(f"a list of sums reads {_EXAMPLE!r}, got {prompt!r}")
    return Task(tuple(_item(part) for part in body[len("Sums: ") : -1].split("; ")))


def _item(text: str) -> Item:
    try:
        name, left, right = text.split(" ")
        return Item(name, int(left), int(right))
    except ValueError as error:
        raise ValueError(f"{text!r} is not an item of {_EXAMPLE!r}: {error}") from error


_EXAMPLE = Task((Item("fox", 27, 58), Item("owl", 12, 31))).prompt
