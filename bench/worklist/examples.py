"""Batches of snapshots for training."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch

from bench.worklist.simulate import LAYOUTS, Collaboration, Snapshot, prompt_pieces
from hogwild_sgl.prompts import WORKER_NAMES
from hogwild_sgl.worklist import tokenizer, words
from hogwild_sgl.worklist.task import Split, Task, draw_task

IGNORED = -100
NAMES = WORKER_NAMES[:8]
# Sizes 6, 10, 16 and 22 are never trained on.
SIZES = tuple(size for size in range(2, 25) if size not in (6, 10, 16, 22))
_LAYOUT_SHARES = (0.45, 0.2, 0.2, 0.15)
_WORKERS, _WORKER_SHARES = (1, 2, 3, 4, 5), (0.2, 0.3, 0.2, 0.25, 0.05)
_SNAPSHOTS = 4  # taken of one collaboration
_CONFLICTS = 4  # beside them
_ENDINGS = 2  # of each kind
_LATE = 3  # items to choose from
_LAST_ITEM = "last item"


@dataclass(frozen=True)
class Lists:
    """A list that is repeated in other orders: its pieces, and which of them can be predicted.

    What follows a name can be copied from the list. choices: by index, the names that have
    not been there; when all have been, the list is done.
    """

    view: list[str]
    learn: list[bool]
    choices: dict[int, frozenset[str]]


Example = Snapshot | Lists


@dataclass(frozen=True)
class Batch:
    """ids and labels, both (sequences, length); IGNORED where there is nothing to learn.

    choices: (row, index) of pieces where others would have been as good, and the ids of all
    that would.
    """

    ids: torch.Tensor
    labels: torch.Tensor
    choices: dict[tuple[int, int], list[int]]

    def good(self, vocabulary: int) -> torch.Tensor:
        """Which pieces are right, bool (pieces to learn, vocabulary), in order of row and
        index."""
        wanted = self.labels != IGNORED
        good = torch.nn.functional.one_hot(self.labels[wanted], vocabulary).bool()
        place = wanted.flatten().cumsum(0) - 1
        for (row, index), ids in self.choices.items():
            good[place[row * self.labels.shape[1] + index], ids] = True
        return good


def snapshots(
    rng: random.Random, split: Split, largest: int, endings: bool = False
) -> Iterator[Snapshot]:
    """A few snapshots each of endless collaborations on tasks of up to ``largest`` items.

    endings: of each kind of choice that comes up late, two more: one of the last items,
    waiting, the last line.
    """
    sizes = [size for size in SIZES if size <= largest]
    while True:
        task = draw_task(rng, rng.choice(sizes), split)
        (layout,) = rng.choices(LAYOUTS, _LAYOUT_SHARES)
        (workers,) = rng.choices(_WORKERS, _WORKER_SHARES)
        names = [NAMES[i] for i in sorted(rng.sample(range(len(NAMES)), workers))]
        seen = list(Collaboration(task, names, layout, rng, checks=rng.random() < 0.5).run())
        yield from rng.sample(seen, min(_SNAPSHOTS, len(seen)))
        # There are few of them, and each has something to teach.
        conflicts = [snapshot for snapshot in seen if snapshot.conflict]
        yield from rng.sample(conflicts, min(_CONFLICTS, len(conflicts)))
        for kind in (_LAST_ITEM, words.WAITING, words.ALL_DONE) if endings else ():
            some = [s for s in seen if s.learn[s.chosen] and _ending(s) == kind]
            yield from rng.sample(some, min(_ENDINGS, len(some)))


def _ending(snapshot: Snapshot) -> str | None:
    """Which kind of choice that comes up late it is, if any: one of the last items, waiting, or
    the last line."""
    said = snapshot.view[snapshot.chosen]
    if said in (words.WAITING, words.ALL_DONE):
        return said
    return _LAST_ITEM if len(snapshot.good) <= _LATE else None


def lists(rng: random.Random, largest: int, repeats: int, names: bool) -> Iterator[Lists]:
    """Endless lists of 2 to ``largest`` items and so many repeats. names: learn these too, and
    that there is none left."""
    while True:
        task = draw_task(rng, rng.randint(2, largest), Split.TRAIN)
        yield _repeated(rng, task, repeats, names)


def _repeated(rng: random.Random, task: Task, repeats: int, names: bool) -> Lists:
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
                choices[len(view)] = frozenset(f" {item.name}" for item in left)
            item = left.pop()
            put(f" {item.name}", learn=names)
            put(f" {item.left}", f" {item.right}", learn=True)
    head()
    put(words.ALL_DONE, learn=names)
    return Lists(view, marks, choices)


class Encoder:
    """Pieces to token ids."""

    def __init__(self) -> None:
        vocabulary = tokenizer.build().get_vocab()
        self.ids = {piece: vocabulary[piece] for piece in tokenizer.pieces()}
        self.pieces = {token: piece for piece, token in self.ids.items()}
        self.names = [self.ids[f" {name}"] for name in words.ITEM_NAMES]

    def batch(self, some: Sequence[Example]) -> Batch:
        length = max(len(snapshot.view) for snapshot in some)
        ids = torch.zeros(len(some), length, dtype=torch.long)
        labels = torch.full((len(some), length), IGNORED)
        choices = {}
        for row, snapshot in enumerate(some):
            tokens = torch.tensor([self.ids[piece] for piece in snapshot.view])
            ids[row, : len(tokens)] = tokens
            learn = torch.tensor(snapshot.learn)
            labels[row, : len(tokens)] = torch.where(learn, tokens, IGNORED)
            for index, good in snapshot.choices.items():
                if snapshot.learn[index] and len(good) > 1:
                    choices[row, index] = [self.ids[piece] for piece in sorted(good)]
        return Batch(ids, labels, choices)


def batches(source: Iterator[Example], encoder: Encoder, tokens: int) -> Iterator[Batch]:
    """Endless batches of about ``tokens`` tokens, of examples of like length."""
    while True:
        pool = sorted((next(source) for _ in range(256)), key=lambda s: len(s.view))
        groups, first = [], 0
        while first < len(pool):
            last = first
            while last < len(pool) and (last + 1 - first) * len(pool[last].view) <= tokens:
                last += 1
            groups.append(pool[first : max(last, first + 1)])
            first = max(last, first + 1)
        random.Random(len(groups)).shuffle(groups)
        for group in groups:
            yield encoder.batch(group)
