"""Batches of plays for training."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch

from hogwild_sgl.bench.worklist.attention import Places, places
from hogwild_sgl.bench.worklist.simulate import (
    LAYOUTS,
    PROMPT,
    Collaboration,
    Forward,
    Play,
    prompt_pieces,
)
from hogwild_sgl.prompts import WORKER_NAMES
from hogwild_sgl.worklist import tokenizer, words
from hogwild_sgl.worklist.task import Split, Task, draw_task

IGNORED = -100
NAMES = WORKER_NAMES[:8]
# Sizes 6, 10, 16 and 22 are never trained on.
SIZES = tuple(size for size in range(2, 25) if size not in (6, 10, 16, 22))
_LAYOUT_SHARES = (0.35, 0.15, 0.4, 0.1)
_WORKERS, _WORKER_SHARES = (1, 2, 3, 4, 5), (0.2, 0.3, 0.2, 0.25, 0.05)
_ALIKE = 0.5  # so often all like the same items best, or there would be few conflicts
_MAX_PAUSES = (0, 2)
_RARE = 5.0  # weight of what is rarely to be decided


@dataclass(frozen=True)
class Batch:
    """The computed pieces of some plays, one play behind the other, segment by segment.

    ids: (n,). labels: (n,), what comes next; IGNORED where there is nothing to learn. choices:
    by index, the ids of all pieces that would be right next, where there are several. weights:
    (n,), by which the labels count. places: of each play.
    """

    ids: torch.Tensor
    labels: torch.Tensor
    choices: dict[int, list[int]]
    weights: torch.Tensor
    places: list[Places]

    def good(self, vocabulary: int) -> torch.Tensor:
        """Which pieces are right, bool (pieces to learn, vocabulary), in order of the index."""
        wanted = self.labels != IGNORED
        good = torch.nn.functional.one_hot(self.labels[wanted], vocabulary).bool()
        place = wanted.cumsum(0) - 1
        for index, ids in self.choices.items():
            good[place[index], ids] = True
        return good


def teams(rng: random.Random, split: Split, largest: int) -> Iterator[Play]:
    """Endless collaborations on tasks of up to ``largest`` items, with about as many pieces of
    each size: short ones have the most to teach of conflicts, waiting and the last line."""
    sizes = [size for size in SIZES if size <= largest]
    while True:
        (size,) = rng.choices(sizes, [1 / size for size in sizes])
        task = draw_task(rng, size, split)
        (layout,) = rng.choices(LAYOUTS, _LAYOUT_SHARES)
        # Who sees nobody works as if alone.
        workers = 1 if layout == "independent" else rng.choices(_WORKERS, _WORKER_SHARES)[0]
        names = [NAMES[i] for i in sorted(rng.sample(range(len(NAMES)), workers))]
        checks, alike = rng.random() < 0.5, rng.random() < _ALIKE
        yield Collaboration(
            task, names, layout, rng, checks, alike, max_pause=rng.choice(_MAX_PAUSES)
        ).run()


def lists(rng: random.Random, largest: int, repeats: int, names: bool) -> Iterator[Play]:
    """Endless lists of 2 to ``largest`` items that are repeated in other orders, so many times.

    What follows a name can be copied from the list. names: learn these too, and that there is
    none left.
    """
    while True:
        task = draw_task(rng, rng.randint(2, largest), Split.TRAIN)
        yield _repeated(rng, task, repeats, names)


def _repeated(rng: random.Random, task: Task, repeats: int, names: bool) -> Play:
    view, choices = prompt_pieces(task), {}
    marks = [False] * len(view)

    def put(*pieces: str, learn: bool) -> None:
        view.extend(pieces)
        marks.extend([learn] * len(pieces))

    def head() -> None:
        # As in front of a step; whose it is does not matter.
        put(f" [{rng.randint(1, words.MAX_STEPS)}", words.SAYS, learn=False)

    for _ in range(repeats):
        left = rng.sample(task.items, len(task.items))
        while left:
            head()
            if names:
                choices[PROMPT, len(view)] = frozenset(f" {item.name}" for item in left)
            item = left.pop()
            put(f" {item.name}", learn=names)
            put(f" {item.left}", f" {item.right}", learn=True)
    head()
    put(words.ALL_DONE, learn=names)
    whole = Forward(PROMPT, 0, len(view) - 1, ((PROMPT, len(view) - 1),))
    return Play((tuple(view),), (whole,), (tuple(marks),), choices)


class Encoder:
    """Pieces to token ids."""

    def __init__(self) -> None:
        vocabulary = tokenizer.build().get_vocab()
        self.ids = {piece: vocabulary[piece] for piece in tokenizer.pieces()}
        self.pieces = {token: piece for piece, token in self.ids.items()}
        self.names = [self.ids[f" {name}"] for name in words.ITEM_NAMES]

    def batch(self, some: Sequence[Play]) -> Batch:
        ids, labels, choices, weights = [], [], {}, []
        for play in some:
            for segment, last in sorted(play.computed.items()):
                pieces, marks = play.segments[segment], play.learn[segment]
                for index in range(last):
                    label, following = IGNORED, index + 1
                    if following < len(pieces) and marks[following]:
                        label = self.ids[pieces[following]]
                        good = play.good_at(segment, following)
                        if len(good) > 1:
                            choices[len(ids)] = [self.ids[piece] for piece in sorted(good)]
                    ids.append(self.ids[pieces[index]])
                    labels.append(label)
                    weights.append(_RARE if (segment, following) in play.rare else 1.0)
        where = [places(play) for play in some]
        return Batch(torch.tensor(ids), torch.tensor(labels), choices, torch.tensor(weights), where)


def batches(source: Iterator[Play], encoder: Encoder, tokens: int) -> Iterator[Batch]:
    """Endless batches of about ``tokens`` computed pieces."""
    some, total = [], 0
    for play in source:
        size = sum(play.computed.values())
        if some and total + size > tokens:
            yield encoder.batch(some)
            some, total = [], 0
        some.append(play)
        total += size
