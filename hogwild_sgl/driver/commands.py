"""What the driver asks for and what it is told: plain records, no I/O."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from hogwild_sgl.prompts.formatting import Formatting, check_workers
from hogwild_sgl.transcript import Check

WHO = ("random", "first", "all")


@dataclass(frozen=True)
class FinishedStep:
    """A published step, as stop rules and conflict rules see it.

    text: what the worker generated; fed: what it was given first. finish: sentence,
    length, stop, eos, context.
    """

    worker: int
    name: str
    number: int
    fed: str
    text: str
    output_tokens: int
    finish: str


@dataclass(frozen=True)
class LiveText:
    """A step that is being written: what there is of it so far."""

    worker: int
    name: str
    number: int
    attempt: int
    fed: str
    text: str


# True, or the answer itself, ends the run. Called with generated text only.
StopRule = Callable[[FinishedStep], object]
# True: the live step rests on a history that the published step has changed.
ConflictRule = Callable[[FinishedStep, LiveText], bool]


@dataclass(frozen=True)
class CheckRule:
    """The redundancy check.

    every: generated tokens between checks, summed over the workers. who: ``random`` (one
    worker, drawn from the seed), ``first`` (worker 0 while it writes) or ``all``. text:
    the question; None for the formatting's.
    """

    every: int = 1024
    who: str = "random"
    text: str | None = None

    def __post_init__(self) -> None:
        if self.every < 1:
            raise ValueError(f"a check every {self.every} tokens; it is at least 1")
        if self.who not in WHO:
            raise ValueError(f"who is checked is one of {list(WHO)}, got {self.who!r}")


@dataclass(frozen=True)
class Rules:
    """What the driver goes by.

    budget: sequential forward passes that the workers may use.
    step_tokens: most tokens generated in one step; None for no limit but the budget.
    check: None for no checks. stop: None to go on until the budget is used.
    conflict, max_retries: when a live step is dropped and written again, and how often at
        most for one step; None for never.
    probe_at: budgets at which the current answer is read, each at most ``probe_tokens``
        tokens long. hints: (passes, text), said into the history when that many passes
        are used.
    """

    workers: tuple[str, ...]
    formatting: Formatting
    budget: int
    seed: int = 0
    step_tokens: int | None = None
    check: CheckRule | None = None
    stop: StopRule | None = None
    conflict: ConflictRule | None = None
    max_retries: int = 1
    probe_at: tuple[int, ...] = ()
    probe_tokens: int = 64
    hints: tuple[tuple[int, str], ...] = ()

    def __post_init__(self) -> None:
        check_workers(self.workers)
        if self.budget < 1:
            raise ValueError(f"the budget is at least one forward pass, got {self.budget}")
        if self.step_tokens is not None and self.step_tokens < 1:
            raise ValueError(f"a step has at least one token, got {self.step_tokens}")
        if self.max_retries < 0:
            raise ValueError(f"the number of retries is not negative, got {self.max_retries}")
        if self.probe_tokens < 1:
            raise ValueError(f"a probe has at least one token, got {self.probe_tokens}")
        beyond = [at for at in self.probe_at if not 1 <= at <= self.budget]
        if beyond:
            raise ValueError(f"probes at {beyond} are outside the budget of {self.budget} passes")
        if any(at < 0 or not text for at, text in self.hints):
            raise ValueError("a hint has a number of passes and a text that is not empty")


@dataclass(frozen=True)
class WorkerStart:
    """Where a worker stands when the driver takes over.

    steps: steps it has published. separated: it carries a token that ends in a blank
    line, so that its next step need not be fed the separator.
    """

    steps: int = 0
    separated: bool = False


@dataclass(frozen=True)
class Write:
    """Let a worker write a step: feed ``text``, then generate.

    until: the team's forwards at which the step ends at the latest. check: ``text`` ends in
    the redundancy check. attempt: 1, or more if the step was dropped before. seed: SGLang's
    ``sampling_seed``. ahead: the step begins when the worker's live one has been published;
    separator: is then fed before ``text`` unless that one ended in a blank line.
    """

    worker: int
    name: str
    number: int
    attempt: int
    text: str
    max_new_tokens: int
    until: int
    check: bool
    seed: int
    ahead: bool = False
    separator: str = ""


@dataclass(frozen=True)
class Answered:
    """A redundancy check has been answered. Act on it (``Driver.steer``, ``set_check``)
    before the next poll: later steps go by it."""

    check: Check


@dataclass(frozen=True)
class ReadAnswer:
    """Read the current answer with a reader; the run goes on meanwhile."""

    budget: int
    passes: int
    text: str
    max_new_tokens: int
    stop: tuple[str, ...]
    seed: int


@dataclass(frozen=True)
class SayHint:
    """Publish ``text`` as a voice from outside."""

    text: str


@dataclass(frozen=True)
class AbortStep:
    """Drop the worker's live step if it is this one; tell the driver with ``dropped``."""

    worker: int
    number: int


@dataclass(frozen=True)
class Done:
    """The run is over, given once.

    reason: ``budget``, ``stop`` or ``workers_ended``. answer: what the stop rule returned,
    if that was a text. Steps that are live stay so; who runs the driver ends them.
    """

    reason: str
    answer: str | None = None


Command = Write | Answered | ReadAnswer | SayHint | AbortStep | Done
