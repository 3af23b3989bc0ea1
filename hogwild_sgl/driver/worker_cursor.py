"""What the driver keeps of each worker."""

from __future__ import annotations

from dataclasses import dataclass, field

from hogwild_sgl.driver.commands import Write


@dataclass(frozen=True)
class Extra:
    """What a step is fed besides its prefix: a text to steer by, and a redundancy check.

    due: tokens and passes at which the check fell due; None for no check.
    """

    steer: str = ""
    due: tuple[int, int] | None = None

    def __add__(self, later: Extra) -> Extra:
        return Extra(self.steer + later.steer, self.due or later.due)


@dataclass(frozen=True)
class Planned:
    """A step that has been asked for."""

    write: Write
    extra: Extra


@dataclass(frozen=True)
class Ended:
    """A published step: generated text, its tokens, why it ended."""

    text: str
    tokens: int
    finish: str


@dataclass
class WorkerNote:
    """steps, separated: see ``WorkerStart``. first: it has published nothing yet.

    retired: it has ended its turn, or its view is full. over: a step of its was refused
        because the budget had been used.
    attempts: by step number, how often it has been asked for; drops: how often the next one
        has been lost.
    extra: for the next step that is planned; again: for one that is to be written again.
    current, ahead: the step under way, or about to begin, and the one asked for behind it.
    aborting: the step that was last to be aborted.
    """

    steps: int
    separated: bool
    first: bool = True
    retired: bool = False
    over: bool = False
    attempts: dict[int, int] = field(default_factory=dict)
    drops: int = 0
    extra: Extra = Extra()
    again: Extra | None = None
    current: Planned | None = None
    ahead: Planned | None = None
    aborting: Write | None = None
