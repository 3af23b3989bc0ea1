"""A team in memory that carries out what the driver says, a forward at a time."""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import strategies as st

from hogwild_sgl import prompts
from hogwild_sgl.driver.commands import AbortStep, Command, Done, Write
from hogwild_sgl.driver.driver import Driver

NAMES = ("Alice", "Bob", "Carol")
EN = prompts.formatting("maths", openers=False)

# What is made up of a team: how long its steps are, how they end, how late messages are.
lengths = st.lists(st.integers(1, 30), min_size=1, max_size=6)
finishes = st.lists(st.sampled_from(["sentence", "stop"]), min_size=1, max_size=4)
gaps = st.lists(st.integers(0, 3), min_size=1, max_size=4)


@dataclass
class Step:
    write: Write
    length: int
    finish: str
    tokens: int = 0


@dataclass
class Team:
    """Live steps advance together, one token a forward; each ends after its length.

    A step sent ahead begins when its worker's live one has been published. gaps: forwards
    that a message takes from the driver to the team.
    """

    driver: Driver
    lengths: list[int]
    finishes: list[str]
    gaps: list[int] = field(default_factory=lambda: [0])
    text: str = "x "
    forwards: int = 0
    live: dict[int, Step] = field(default_factory=dict)
    queued: dict[int, Write] = field(default_factory=dict)
    waiting: list[tuple[int, Write]] = field(default_factory=list)
    log: list[Command] = field(default_factory=list)
    begun: list[tuple[int, Write]] = field(default_factory=list)
    ended: dict[int, int] = field(default_factory=dict)
    over: set[int] = field(default_factory=set)
    steps: dict[int, int] = field(default_factory=dict)
    drawn: int = 0

    def run(self) -> Done:
        while True:
            while commands := self.driver.poll():
                for command in commands:
                    self.log.append(command)
                    if isinstance(command, Done):
                        return command
                    self.carry_out(command)
            self.forward()

    def draw(self, values: list) -> object:
        self.drawn += 1
        return values[self.drawn % len(values)]

    def carry_out(self, command: Command) -> None:
        if isinstance(command, Write):
            assert 1 <= command.max_new_tokens
            self.waiting.append((self.draw(self.gaps), command))
        elif isinstance(command, AbortStep):
            assert self.live[command.worker].write.number == command.number
            del self.live[command.worker]
            self.driver.dropped(command.worker)
            behind = self.queued.pop(command.worker, None)
            if behind is not None:
                self.driver.not_begun(behind)

    def arrive(self, write: Write) -> None:
        live = write.worker in self.live
        if write.number != self.steps.get(write.worker, 0) + (2 if live else 1):
            self.driver.not_begun(write)
        elif live:
            assert write.ahead and write.worker not in self.queued
            self.queued[write.worker] = write
        else:
            self.begin(write)

    def begin(self, write: Write) -> None:
        if self.forwards >= write.until:
            self.driver.not_begun(write, spent=True)
            return
        if write.ahead and write.worker in self.over:
            self.driver.not_begun(write)
            return
        length = min(self.draw(self.lengths), write.max_new_tokens)
        self.live[write.worker] = Step(write, length, self.draw(self.finishes))
        self.begun.append((self.forwards, write))
        self.driver.started(write.worker, self.forwards)

    def forward(self) -> None:
        due = [write for gap, write in self.waiting if gap == 0]
        self.waiting = [(gap - 1, write) for gap, write in self.waiting if gap > 0]
        for write in due:
            self.arrive(write)
        if not self.live:
            return
        self.forwards += 1
        for worker, step in sorted(self.live.items()):
            step.tokens += 1
            self.driver.progressed(worker, self.text, 1)
        for worker, step in sorted(self.live.items()):
            full = step.tokens == step.write.max_new_tokens or self.forwards >= step.write.until
            if step.tokens == step.length or full:
                self.publish(worker, step, "length" if full else step.finish)

    def publish(self, worker: int, step: Step, finish: str) -> None:
        del self.live[worker]
        self.ended[worker] = self.forwards
        self.steps[worker] = step.write.number
        if finish == "eos":
            self.over.add(worker)
        self.driver.published(
            worker,
            text=self.text * step.tokens,
            output_tokens=step.tokens,
            passes=self.forwards,
            finish=finish,
        )
        behind = self.queued.pop(worker, None)
        if behind is not None:
            self.begin(behind)

    def of(self, kind: type) -> list:
        return [command for command in self.log if isinstance(command, kind)]

    @property
    def written(self) -> list[Write]:
        """The steps that have begun."""
        return [write for _, write in self.begun]
