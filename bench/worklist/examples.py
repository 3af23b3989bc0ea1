"""Batches of snapshots for training."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch

from bench.worklist.simulate import LAYOUTS, Collaboration, Snapshot, prompt_pieces
from hogwild_sgl.prompts import WORKER_NAMES
from hogwild_sgl.worklist import tokenizer
from hogwild_sgl.worklist.task import Split, draw_task

IGNORED = -100
NAMES = WORKER_NAMES[:8]
# Sizes 6, 10, 16 and 22 are never trained on.
SIZES = tuple(size for size in range(2, 25) if size not in (6, 10, 16, 22))
_LAYOUT_SHARES = (0.45, 0.2, 0.2, 0.15)
_WORKERS, _WORKER_SHARES = (1, 2, 3, 4, 5), (0.2, 0.3, 0.2, 0.25, 0.05)
_SNAPSHOTS = 4  # taken of one collaboration
_CONFLICTS = 2  # beside them


@dataclass(frozen=True)
class Lists:
    """A list that is repeated in other orders: its pieces, and which of them can be predicted.

    What follows a name can be copied from the list; a name is any that has not been there.
    """

    view: list[str]
    learn: list[bool]


Example = Snapshot | Lists


@dataclass(frozen=True)
class Batch:
    """ids and labels, both (sequences, length); IGNORED where there is nothing to learn."""

    ids: torch.Tensor
    labels: torch.Tensor


def snapshots(rng: random.Random, split: Split, largest: int) -> Iterator[Snapshot]:
    """A few snapshots each of endless collaborations on tasks of up to ``largest`` items."""
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


def lists(rng: random.Random, largest: int, repeats: int, names: bool) -> Iterator[Lists]:
    """Endless lists of 2 to ``largest`` items and so many repeats. names: learn these too."""
    while True:
        task = draw_task(rng, rng.randint(2, largest), Split.TRAIN)
        view = prompt_pieces(task)
        learn = [False] * len(view)
        for _ in range(repeats):
            for item in rng.sample(task.items, len(task.items)):
                view += [f" {item.name}", f" {item.left}", f" {item.right}", ","]
                learn += [names, True, True, False]
        yield Lists(view, learn)


class Encoder:
    """Pieces to token ids."""

    def __init__(self) -> None:
        vocabulary = tokenizer.build().get_vocab()
        self.ids = {piece: vocabulary[piece] for piece in tokenizer.pieces()}

    def batch(self, some: Sequence[Example]) -> Batch:
        length = max(len(snapshot.view) for snapshot in some)
        ids = torch.zeros(len(some), length, dtype=torch.long)
        labels = torch.full((len(some), length), IGNORED)
        for row, snapshot in enumerate(some):
            tokens = torch.tensor([self.ids[piece] for piece in snapshot.view])
            ids[row, : len(tokens)] = tokens
            learn = torch.tensor(snapshot.learn)
            labels[row, : len(tokens)] = torch.where(learn, tokens, IGNORED)
        return Batch(ids, labels)


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
