"""The server's replies as typed records (the fields of docs/http.md)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, dataclass, field, fields
from typing import Any, TypeVar

from hogwild_sgl.errors import ProtocolError

_Record = TypeVar("_Record")


def record_from(record: type[_Record], data: Any) -> _Record:
    """``data`` as ``record``; fields that a newer server adds are left out.

    Raises ProtocolError when a field is missing.
    """
    if not isinstance(data, Mapping):
        raise ProtocolError(f"expected a {record.__name__} in the reply, got {data!r}")
    known = fields(record)  # type: ignore[arg-type]
    missing = [
        f.name
        for f in known
        if f.name not in data and f.default is MISSING and f.default_factory is MISSING
    ]
    if missing:
        raise ProtocolError(f"the server's {record.__name__} lacks {missing}: {data!r}")
    return record(**{f.name: data[f.name] for f in known if f.name in data})


@dataclass(frozen=True)
class StepRecord:
    """What the server says of a step; see docs/http.md, "Write a step".

    ``team_forwards`` is the clock of budgets: forwards in which a worker of the team had
    a row, readers not counted.
    """

    team: str
    worker: int | None
    name: str | None
    reader: bool
    number: int | None
    fed_tokens: int
    index: int | None = None
    output_tokens: int = 0
    published_tokens: int = 0
    forwards: int = 0
    team_forwards: int = 0
    history_start: int = 0
    history_published: int | None = None
    finish: Mapping[str, Any] = field(default_factory=dict)

    @property
    def finish_type(self) -> str:
        """sentence, length, stop, eos, context or said; empty while the step is live."""
        return str(self.finish.get("type", ""))


@dataclass(frozen=True)
class StepStarted:
    """The first message of a streamed step."""

    step: StepRecord


@dataclass(frozen=True)
class StepText:
    """Tokens of a streamed step as they come."""

    text: str
    output_ids: tuple[int, ...]


@dataclass(frozen=True)
class StepReply:
    """A finished step: generated text and ids, its record, SGLang's own ``meta_info``."""

    text: str
    output_ids: tuple[int, ...]
    step: StepRecord
    meta_info: Mapping[str, Any]


@dataclass(frozen=True)
class LiveStep:
    rid: str
    number: int
    fed_tokens: int
    text: str


@dataclass(frozen=True)
class WorkerState:
    worker: int
    name: str
    steps: int
    tokens: int
    live: LiveStep | None


@dataclass(frozen=True)
class PublishedStep:
    """A published step as the snapshot shows it; worker None is a voice from outside."""

    index: int
    worker: int | None
    name: str | None
    number: int | None
    tokens: int
    text: str


@dataclass(frozen=True)
class Snapshot:
    """A team at one moment."""

    team: str
    state: str
    layout: str
    seed: int | None
    workers: tuple[WorkerState, ...]
    readers: int
    prompt_tokens: int
    history_tokens: int
    team_forwards: int
    steps: tuple[PublishedStep, ...]
    kv_tokens: int


@dataclass(frozen=True)
class TeamInfo:
    """The reply to opening a team."""

    team: str
    workers: tuple[str, ...]
    layout: str
    seed: int | None
    prompt_tokens: int
    header_tokens: Mapping[str, int]
    context_length: int
    idle_timeout: float | None


def step_reply(data: Mapping[str, Any]) -> StepReply:
    return StepReply(
        text=str(data.get("text", "")),
        output_ids=tuple(data.get("output_ids") or ()),
        step=record_from(StepRecord, data.get("step")),
        meta_info=data.get("meta_info") or {},
    )


def snapshot(data: Mapping[str, Any]) -> Snapshot:
    workers = tuple(
        record_from(
            WorkerState,
            {**worker, "live": worker.get("live") and record_from(LiveStep, worker["live"])},
        )
        for worker in data.get("workers", ())
    )
    steps = tuple(record_from(PublishedStep, step) for step in data.get("steps", ()))
    return record_from(Snapshot, {**data, "workers": workers, "steps": steps})


def team_info(data: Mapping[str, Any]) -> TeamInfo:
    return record_from(TeamInfo, {**data, "workers": tuple(data.get("workers", ()))})
