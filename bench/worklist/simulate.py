"""Simulated collaborations on a worklist, and what each worker sees in them.

Workers write one piece (a word of the vocabulary) per tick, all at once, as in the engine.
A worker that begins a step looks at its view: it takes an item at random among those that
nobody in the view has done or is doing (in some teams the one that all of them like best);
if there is none it waits for somebody who still writes, and if nobody does it writes the last
line. Two workers that took the same item in the same tick see it in the next: the later one
in the order of the team leaves it to the other. Nothing here depends on how many workers
there are.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from hogwild_sgl.worklist import words
from hogwild_sgl.worklist.task import Task

LAYOUTS = ("combined", "interleaved", "contiguous", "independent")
_MAX_PAUSES = (0, 2)  # ticks between a worker's steps, at most; of a whole collaboration
_ALIKE = 0.35  # of the collaborations, where all like the same items best
_CHECK_SHARE = 0.15  # of the steps, where there are checks
_LOOK_AGAIN = 0.02  # of the ticks, a step is seen once more


@dataclass
class Step:
    """A step: ``pieces`` with the break and header in front, of which ``shown`` are there.

    start: the index of the first piece that the worker itself wrote. chosen: the index of the
    piece that names the item, or that says what else it does; None until it is decided.
    good: what could have been chosen. awaited: whom it could wait for, if it waits. item: the
    name of the item that it works on. yielded: left to another worker after all.
    """

    worker: int
    number: int
    pieces: list[str]
    start: int
    shown: int
    pause_after: int
    chosen: int | None = None
    good: frozenset[str] = frozenset()
    awaited: frozenset[str] = frozenset()
    item: str | None = None
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
class Snapshot:
    """What a worker sees and what it writes.

    view: the pieces in the worker's order, its own step last, whole and with a break behind.
    learn: for each piece, whether it is to be predicted. chosen: index of the piece that says
    what the worker does. choices: by index, the pieces that would have been as good as the
    one there; of chosen, of whom it waits for, and of the others' steps as far as they are to
    be predicted.
    conflict: it took an item at the same time as another worker.
    """

    view: list[str]
    learn: list[bool]
    chosen: int
    choices: dict[int, frozenset[str]]
    conflict: bool = False

    def __post_init__(self) -> None:
        if len(self.view) != len(self.learn):
            raise ValueError("one mark for each piece")
        if self.chosen not in self.choices:
            raise ValueError("what the worker does is a choice")
        for index, good in self.choices.items():
            if self.view[index] not in good:
                raise ValueError(f"{self.view[index]!r} is not a good choice")

    @property
    def good(self) -> frozenset[str]:
        """What the worker could have done."""
        return self.good_at(self.chosen)

    def good_at(self, index: int) -> frozenset[str]:
        """The pieces that would be right there."""
        return self.choices.get(index) or frozenset([self.view[index]])


@dataclass
class Collaboration:
    """A team at work on a task."""

    task: Task
    names: Sequence[str]
    layout: str
    rng: random.Random
    checks: bool = False
    published: list[Step] = field(default_factory=list)
    live: dict[int, Step] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.layout not in LAYOUTS:
            raise ValueError(f"layout is one of {LAYOUTS}, got {self.layout!r}")
        self._pause = [0] * len(self.names)
        self._max_pause = self.rng.choice(_MAX_PAUSES)
        # There are few conflicts where everyone draws for himself, and much to learn from them.
        self._alike = self.rng.random() < _ALIKE
        self._liked = self.rng.sample(self.task.items, len(self.task.items))
        self._numbers = [0] * len(self.names)
        self._prompt = prompt_pieces(self.task)

    def run(self) -> Iterator[Snapshot]:
        """Snapshots until the last line is written, in order of time."""
        while True:
            yield from self._tick()
            if any(step.is_final for step in self.published):
                return
            if max(self._numbers) >= words.MAX_STEPS:
                return

    def _tick(self) -> Iterator[Snapshot]:
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
        for step in undecided:
            yield self._snapshot(step, learn_choice=True)
        for step in self.live.values():
            step.shown += 1
        for step in list(self.live.values()):
            yield from self._look(step)
        for worker in sorted(self.live):
            if self.live[worker].finished:
                step = self.live.pop(worker)
                self.published.append(step)
                self._pause[worker] = step.pause_after

    def _begin(self, worker: int) -> None:
        self._numbers[worker] += 1
        number = self._numbers[worker]
        fed = [words.BREAK, f"**{self.names[worker]}", f" [{number}", words.SAYS]
        pieces = list(fed)
        if self.checks and self.rng.random() < _CHECK_SHARE:
            fed.append(words.CHECK)
            answer = words.YES if self._repeated(worker) else words.NO
            pieces = [*fed, answer, ","]
        pause = self.rng.randint(0, self._max_pause)
        self.live[worker] = Step(worker, number, pieces, len(fed), len(fed), pause)

    def _choose(self, step: Step) -> None:
        seen = self._seen(step.worker)
        step.chosen = len(step.pieces)
        done = {s.item for s in seen if s.item and s.finished and not s.yielded}
        doing = {s.item for s in seen if not s.finished and s.names_item}
        left = [item for item in self.task.items if item.name not in done | doing]
        if left:
            item = min(left, key=self._liked.index) if self._alike else self.rng.choice(left)
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

    def _look(self, step: Step) -> Iterator[Snapshot]:
        """The step once more, with what the others have written since."""
        if not step.names_item or step.yielded:
            return
        if step.shown == step.chosen + 1:
            rival = self._rival(step)
            if rival is not None:
                if rival.worker < step.worker:
                    name = self.names[rival.worker]
                    step.pieces[step.chosen + 1 :] = [words.IS_WITH, f" {name}", "."]
                    step.yielded = True
                yield replace(self._snapshot(step, learn_choice=False), conflict=True)
                return
        if step.shown < len(step.pieces) and self.rng.random() < _LOOK_AGAIN:
            yield self._snapshot(step, learn_choice=False)

    def _rival(self, step: Step) -> Step | None:
        rivals = [
            other
            for other in self._seen(step.worker)
            if other.item == step.item and other.names_item and not other.finished
        ]
        return min(rivals, key=lambda other: other.worker, default=None)

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

    def _snapshot(self, step: Step, learn_choice: bool) -> Snapshot:
        view, learn = list(self._prompt), [False] * len(self._prompt)
        unnamed = {item.name for item in self.task.items}
        choices = {}

        def put(other: Step) -> None:
            marks = _worth_learning(other, unnamed)
            if other.chosen is not None and other.shown > other.chosen and marks[other.chosen]:
                choices[len(view) + other.chosen] = frozenset(f" {name}" for name in unnamed)
            unnamed.discard(other.item if other.names_item else None)
            view.extend(other.pieces[: other.shown])
            learn.extend(marks)

        def head(text: str) -> None:
            view.append(text)
            learn.append(False)

        worker = step.worker
        if self.layout == "contiguous":
            head(words.OTHERS)
            for other in range(len(self.names)):
                if other != worker:
                    for past in self.published:
                        if past.worker == other:
                            put(past)
                    if other in self.live:
                        put(self.live[other])
            head(words.OWN)
            for past in self.published:
                if past.worker == worker:
                    put(past)
        else:
            seen = self._seen(worker)
            for past in seen:
                if past.finished:
                    put(past)
            if self.layout == "combined":
                head(words.OTHERS)
                for other in seen:
                    if not other.finished:
                        put(other)
            if self.layout != "independent":
                head(words.OWN)
        view.extend(step.pieces)
        own = [index >= step.start for index in range(len(step.pieces))]
        if not learn_choice:
            own[: step.chosen + 1] = [False] * (step.chosen + 1)
        chosen = len(view) - len(step.pieces) + step.chosen
        view.append(words.BREAK)
        choices[chosen] = step.good
        if step.awaited:
            choices[chosen + 1] = step.awaited
        return Snapshot(view, [*learn, *own, True], chosen, choices)


def _is_work(step: Step) -> bool:
    """Whether others wait for the step: it names its item, or is the last line."""
    return (step.names_item and not step.yielded) or step.is_final


def _worth_learning(step: Step, unnamed: set[str]) -> list[bool]:
    """Which pieces of somebody's step can be predicted from what stands before them.

    What it chose depends on what its writer saw; only a new item is as good a choice as any.
    """
    marks = [False] * step.shown
    if not step.names_item or step.yielded:
        return marks
    for index in range(step.chosen + 1, step.shown):
        marks[index] = True
    marks[step.chosen] = step.item in unnamed
    return marks


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
