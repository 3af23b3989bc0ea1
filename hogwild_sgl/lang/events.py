"""What happens to a team, as its program sees it."""

from __future__ import annotations

from dataclasses import dataclass

from hogwild_sgl.client.records import StepRecord, StepReply
from hogwild_sgl.driver.commands import Write


@dataclass(frozen=True)
class Started:
    """A worker's step has been admitted; ``fed`` was given first."""

    worker: int
    record: StepRecord
    fed: str


@dataclass(frozen=True)
class Grown:
    """A live step grew by ``text``, ``tokens`` tokens long."""

    worker: int
    text: str
    tokens: int


@dataclass(frozen=True)
class Published:
    worker: int
    fed: str
    reply: StepReply


@dataclass(frozen=True)
class Dropped:
    """A step left nothing behind."""

    worker: int
    fed: str


@dataclass(frozen=True)
class NotBegun:
    """A step that the driver asked for could not be begun. spent: the forwards it was given
    had been used."""

    worker: int
    write: Write
    spent: bool


@dataclass(frozen=True)
class Said:
    """Published without generating; worker None is a voice from outside."""

    worker: int | None
    text: str
    record: StepRecord


@dataclass(frozen=True)
class Read:
    """A reader is done. purpose: ``finish`` or ``probe``. start: its record when it was
    admitted; began: seconds on the monotonic clock then."""

    purpose: str
    fed: str
    reply: StepReply
    start: StepRecord
    began: float


@dataclass(frozen=True)
class Failed:
    """A step could not be written."""

    worker: int
    error: BaseException


Event = Started | Grown | Published | Dropped | NotBegun | Said | Read | Failed
