"""Simulated collaborations on a worklist, as an engine with a shared cache computes them.

Workers write one piece (a word of the vocabulary) per forward, all at once, as in the engine.
A worker that begins a step looks at its view: it takes an item at random among those that
nobody in the view has done or is doing (or the one that all of them like best);
if there is none it waits for somebody who still writes, and if nobody does it writes the last
line. Two workers that took the same item in the same forward see it in the next: the later
one in the order of the team leaves it to the other. Nothing here depends on how many workers
there are.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

from hogwild_sgl.worklist import words
from hogwild_sgl.worklist.task import Task

LAYOUTS = ("combined", "interleaved", "contiguous", "independent")
_CHECK_SHARE = 0.15  # of the steps, where there are checks
PROMPT, OTHERS, OWN = range(3)  # segments that every play has; the steps come behind them


@dataclass
class Step:
    """A step: ``pieces`` with the break and header in front, of which ``shown`` are there.

    segment: its number in the play. start: the index of the first piece that the worker itself
    wrote. computed: how many pieces have been through a forward. chosen: the index of the piece
    that names the item, or that says what else it does; None until it is decided. good: what
    could have been chosen. awaited: whom it could wait for, if it waits. item: the name of the
    item that it works on. contested: somebody named an item in the same forward. yielded: left
    to another worker after all.
    """

    worker: int
    segment: int
    pieces: list[str]
    start: int
    shown: int
    pause_after: int
    computed: int = 0
    chosen: int | None = None
    good: frozenset[str] = frozenset()
    awaited: frozenset[str] = frozenset()
    item: str | None = None
    contested: bool = False
    yielded: bool = False

    @property
    def finished(self) -> bool:
        return self.chosen is not None and self.shown == len(self.pieces)

    @property
    def unanswered(self) -> bool:
        """Whether a check has been put, and is being answered."""
        return self.shown < len(self.pieces) and self.chosen is None

    @property
    def says_what(self) -> bool:
        """Whether it can be read what the step does."""
        return self.chosen is not None and self.shown > self.chosen

    @property
    def is_final(self) -> bool:
        return self.says_what and self.pieces[self.chosen] == words.ALL_DONE

    @property
    def names_item(self) -> bool:
        return self.item is not None and self.says_what


@dataclass(frozen=True)
class Forward:
    """Pieces ``first`` to ``last`` (exclusive) of a segment, computed in one forward.

    view: what they see, as (segment, number of its pieces), in the worker's order; their own
    segment comes last. Each piece of it sees those before it, as always.
    """

    segment: int
    first: int
    last: int
    view: tuple[tuple[int, int], ...]

    def __post_init__(self) -> None:
        if not self.first < self.last or self.view[-1] != (self.segment, self.last):
            raise ValueError(f"a forward computes pieces at the end of its view: {self}")


@dataclass(frozen=True)
class Play:
    """What there is to learn from, as it was computed.

    segments: pieces; the last ones may be there to be predicted only. forwards: in order of
    time. learn: for each piece, whether it is to be predicted. choices: by (segment, index),
    the pieces that would have been as good as the one there. chosen: where steps say what they
    do, the index by segment. rare: pieces that decide what seldom comes up: whether a step
    keeps an item when somebody else has named one in the same forward, and what is done when
    no item is left.
    """

    segments: tuple[tuple[str, ...], ...]
    forwards: tuple[Forward, ...]
    learn: tuple[tuple[bool, ...], ...]
    choices: dict[tuple[int, int], frozenset[str]]
    chosen: dict[int, int] = field(default_factory=dict)
    rare: frozenset[tuple[int, int]] = frozenset()

    def __post_init__(self) -> None:
        if [len(pieces) for pieces in self.segments] != [len(marks) for marks in self.learn]:
            raise ValueError("one mark for each piece")
        for (segment, index), good in self.choices.items():
            if self.segments[segment][index] not in good:
                raise ValueError(f"{self.segments[segment][index]!r} is not a good choice")

    @cached_property
    def computed(self) -> dict[int, int]:
        """How many pieces of each segment have been through a forward, by segment."""
        return {forward.segment: forward.last for forward in self.forwards}

    def good_at(self, segment: int, index: int) -> frozenset[str]:
        """The pieces that would be right there."""
        return self.choices.get((segment, index)) or frozenset([self.segments[segment][index]])


@dataclass
class Collaboration:
    """A team at work on a task.

    checks: some steps open with a redundancy check. alike: all like the same items best.
    max_pause: forwards between a worker's steps, at most. passes: forwards so far.
    """

    task: Task
    names: Sequence[str]
    layout: str
    rng: random.Random
    checks: bool = False
    alike: bool = False
    max_pause: int = 0
    steps: list[Step] = field(default_factory=list)
    published: list[Step] = field(default_factory=list)
    live: dict[int, Step] = field(default_factory=dict)
    forwards: list[Forward] = field(default_factory=list)
    passes: int = 0

    def __post_init__(self) -> None:
        if self.layout not in LAYOUTS:
            raise ValueError(f"layout is one of {LAYOUTS}, got {self.layout!r}")
        self._pause = [0] * len(self.names)
        self._liked = self.rng.sample(self.task.items, len(self.task.items))
        self._numbers = [0] * len(self.names)
        self._before = [prompt_pieces(self.task), [words.OTHERS], [words.OWN]]
        for segment, pieces in enumerate(self._before):
            self.forwards.append(Forward(segment, 0, len(pieces), ((segment, len(pieces)),)))

    def run(self) -> Play:
        """Plays until the last line is written."""
        while not any(step.is_final for step in self.published):
            if max(self._numbers) >= words.MAX_STEPS:
                break
            self._forward()
        return self.so_far()

    def _forward(self) -> None:
        for worker in range(len(self.names)):
            if worker in self.live:
                continue
            if self._pause[worker] > 0:
                self._pause[worker] -= 1
            else:
                self._begin(worker)
        undecided = [s for s in self.live.values() if s.chosen is None and not s.unanswered]
        # All of them look at once: each sees the others' headers, nobody's choice.
        for step in undecided:
            self._choose(step)
        self.passes += 1
        for step in self.live.values():
            view = (*self.before_step(step.worker), (step.segment, step.shown))
            self.forwards.append(Forward(step.segment, step.computed, step.shown, view))
        for step in self.live.values():
            step.computed = step.shown
        # What ends a step is a piece too, which is fed in front of the next one.
        over = [worker for worker in sorted(self.live) if self.live[worker].finished]
        for step in self.live.values():
            step.shown = min(step.shown + 1, len(step.pieces))
        for worker in over:
            step = self.live.pop(worker)
            self.published.append(step)
            self._pause[worker] = step.pause_after
        for step in self.live.values():
            self._look(step)

    def _begin(self, worker: int) -> None:
        self._numbers[worker] += 1
        number = self._numbers[worker]
        fed = [words.BREAK, f"**{self.names[worker]}", f" [{number}", words.SAYS]
        pieces = list(fed)
        if self.checks and self.rng.random() < _CHECK_SHARE:
            fed.append(words.CHECK)
            answer = words.YES if self._repeated(worker) else words.NO
            pieces = [*fed, answer, ","]
        pause = self.rng.randint(0, self.max_pause)
        segment = len(self._before) + len(self.steps)
        step = Step(worker, segment, pieces, len(fed), len(fed), pause)
        self.live[worker] = step
        self.steps.append(step)

    def _choose(self, step: Step) -> None:
        seen = self._seen(step.worker)
        step.chosen = len(step.pieces)
        done = {s.item for s in seen if s.item and s.finished and not s.yielded}
        doing = {s.item for s in seen if not s.finished and s.names_item}
        left = [item for item in self.task.items if item.name not in done | doing]
        if left:
            item = min(left, key=self._liked.index) if self.alike else self.rng.choice(left)
            step.item = item.name
            step.pieces += line_pieces(item.line())
        elif writing := [s for s in seen if not s.finished and _is_work(s)]:
            whom = [f" {self.names[other.worker]}" for other in writing]
            step.pieces += [words.WAITING, self.rng.choice(whom), "."]
            step.awaited = frozenset(whom)
        else:
            step.pieces += line_pieces(self.task.final())
        step.good = frozenset(f" {item.name}" for item in left) or frozenset(
            [step.pieces[step.chosen]]
        )

    def _look(self, step: Step) -> None:
        """The later one of two that have taken the same item leaves it to the other."""
        if not step.names_item or step.shown != step.chosen + 1:
            return
        seen = self._seen(step.worker)
        step.contested = any(other.names_item and other.shown == other.chosen + 1 for other in seen)
        rivals = [s for s in seen if s.item == step.item and s.names_item and not s.finished]
        rival = min(rivals, key=lambda other: other.worker, default=None)
        if rival is not None and rival.worker < step.worker:
            name = self.names[rival.worker]
            step.pieces[step.chosen + 1 :] = [words.IS_WITH, f" {name}", "."]
            step.yielded = True

    def _repeated(self, worker: int) -> bool:
        """Whether the worker's last item is also somebody else's, as far as it sees."""
        mine = [s for s in self.published if s.worker == worker and s.item and not s.yielded]
        others = [s for s in self._seen(worker) if s.worker != worker and not s.yielded]
        return bool(mine) and any(s.names_item and s.item == mine[-1].item for s in others)

    def _seen(self, worker: int) -> list[Step]:
        """Steps in the worker's view but its own live one: published ones, then live ones."""
        if self.layout == "independent":
            return [step for step in self.published if step.worker == worker]
        seen = list(self.published)
        if self.layout != "interleaved":
            seen += [self.live[other] for other in sorted(self.live) if other != worker]
        return seen

    def before_step(self, worker: int) -> list[tuple[int, int]]:
        """The worker's view up to its live step, as (segment, number of its pieces)."""
        others = [step for other, step in sorted(self.live.items()) if other != worker]
        shown = [(PROMPT, len(self._before[PROMPT]))]
        header_others, header_own = (OTHERS, 1), (OWN, 1)

        def show(steps: Sequence[Step]) -> None:
            shown.extend((step.segment, step.shown) for step in steps)

        if self.layout == "contiguous":
            shown.append(header_others)
            for other in range(len(self.names)):
                if other != worker:
                    show([step for step in self.published if step.worker == other])
                    show([step for step in others if step.worker == other])
            shown.append(header_own)
            show([step for step in self.published if step.worker == worker])
        elif self.layout == "independent":
            show([step for step in self.published if step.worker == worker])
        else:
            show(self.published)
            if self.layout == "combined":
                shown.append(header_others)
                show(others)
            shown.append(header_own)
        return shown

    def so_far(self) -> Play:
        """What has been computed, and what comes next in each step."""
        segments, learn = [tuple(pieces) for pieces in self._before], []
        learn += [(False,) * len(pieces) for pieces in segments]
        choices, chosen = {}, {}
        for step in self.steps:
            segments.append((*step.pieces, words.BREAK))
            learn.append(tuple(index >= step.start for index in range(len(step.pieces) + 1)))
            if step.chosen is not None:
                chosen[step.segment] = step.chosen
                choices[step.segment, step.chosen] = step.good
            if step.awaited:
                choices[step.segment, step.chosen + 1] = step.awaited
        rare = {(s.segment, s.chosen + 1) for s in self.steps if s.contested}
        rare |= {(s.segment, s.chosen) for s in self.steps if s.chosen is not None and not s.item}
        return Play(
            tuple(segments), tuple(self.forwards), tuple(learn), choices, chosen, frozenset(rare)
        )


def _is_work(step: Step) -> bool:
    """Whether others wait for the step: it names its item, or is the last line."""
    return (step.names_item and not step.yielded) or step.is_final


def prompt_pieces(task: Task) -> list[str]:
    """The prompt and the preamble as pieces of the vocabulary."""
    pieces = [words.SUMS]
    for index, item in enumerate(task.items):
        end = ";" if index < len(task.items) - 1 else "."
        pieces += [f" {item.name}", f" {item.left}", f" {item.right}", end]
    return [*pieces, words.PREAMBLE]


def line_pieces(line: str) -> list[str]:
    """A line as pieces: words with the space before them, and marks."""
    pieces = []
    rest = line.replace(words.ALL_DONE, "\0")
    for word in rest.split(" ")[1:] if rest.startswith(" ") else rest.split(" "):
        if word.startswith("\0"):
            pieces.append(words.ALL_DONE)
            continue
        mark = word[-1] if word[-1] in ".,:" else ""
        pieces.append(f" {word.removesuffix(mark)}")
        pieces += [mark] if mark else []
    return pieces
