"""Keeps the transcript of a team as it is written."""

from __future__ import annotations

import threading
import time

from hogwild_sgl.client.records import Snapshot, StepRecord
from hogwild_sgl.lang.events import Dropped, Event, Grown, Published, Read, Said, Started
from hogwild_sgl.transcript import Step


class Recorder:
    """Listens to a team's events. Times count from ``began`` on the monotonic clock."""

    def __init__(self, names: tuple[str, ...], began: float) -> None:
        self.began = began
        self.tokens = [0] * len(names)
        self.finisher_passes = 0
        self.passes = 0
        self._names = names
        self._steps: list[Step] = []
        self._starts: dict[int, tuple[int, float]] = {}
        self._live: dict[int, tuple[str, int]] = {}
        self._lock = threading.Lock()

    def __call__(self, event: Event) -> None:
        with self._lock:
            if isinstance(event, Started):
                self._starts[event.worker] = (event.record.team_forwards, self._now())
                self._live[event.worker] = ("", 0)
            elif isinstance(event, Grown):
                text, tokens = self._live.get(event.worker, ("", 0))
                self._live[event.worker] = (text + event.text, tokens + event.tokens)
                self._advance(self._start(event.worker)[0] + tokens + event.tokens)
            elif isinstance(event, Published):
                self._published(event)
            elif isinstance(event, Dropped):
                self._dropped(event)
            elif isinstance(event, Said):
                self._said(event.worker, event.text, event.record)
            elif isinstance(event, Read):
                self._read(event)

    def steps(self, snapshot: Snapshot | None = None) -> tuple[Step, ...]:
        """The transcript so far. snapshot: adds what others than this program published,
        a person with another client for instance, as the server has it."""
        with self._lock:
            steps = list(self._steps)
        if snapshot is None:
            return tuple(steps)
        known = {step.index for step in steps}
        place = {step.index: at for at, step in enumerate(steps) if step.index is not None}
        for other in snapshot.steps:
            if other.index in known:
                continue
            after = [at for index, at in place.items() if index < other.index]
            near = steps[max(after)] if after else None
            passes, seconds = (near.end_pass, near.end_seconds) if near else (0, 0.0)
            steps.append(
                Step(
                    kind="said" if other.worker is None else "step",
                    worker=other.worker,
                    name=other.name,
                    number=other.number,
                    index=other.index,
                    fed=other.text,
                    text="",
                    fed_tokens=other.tokens,
                    output_tokens=0,
                    start_pass=passes,
                    end_pass=passes,
                    start_seconds=seconds,
                    end_seconds=seconds,
                    finish="said",
                )
            )
        # Published steps have their order from the server, which no clock here knows better.
        published = sorted((s for s in steps if s.index is not None), key=lambda s: s.index)
        others = [step for step in steps if step.index is None]
        return tuple(sorted([*published, *others], key=lambda step: step.end_pass))

    def _published(self, event: Published) -> None:
        record = event.reply.step
        self.tokens[event.worker] += record.output_tokens
        self._advance(record.team_forwards)
        self._add("step", event.worker, event.fed, event.reply.text, record, record.finish_type)

    def _dropped(self, event: Dropped) -> None:
        text, tokens = self._live.pop(event.worker, ("", 0))
        start, seconds = self._start(event.worker)
        self.tokens[event.worker] += tokens
        self._steps.append(
            Step(
                kind="dropped",
                worker=event.worker,
                name=self._names[event.worker],
                number=None,
                index=None,
                fed=event.fed,
                text=text,
                fed_tokens=0,
                output_tokens=tokens,
                start_pass=start,
                end_pass=start + tokens,
                start_seconds=seconds,
                end_seconds=self._now(),
                finish="dropped",
            )
        )

    def _said(self, worker: int | None, text: str, record: StepRecord) -> None:
        self._advance(record.team_forwards)
        if worker is not None:
            self._starts[worker] = (self.passes, self._now())
        self._add("said", worker, text, "", record, "said")

    def _read(self, event: Read) -> None:
        if event.purpose != "finish":
            return
        record, start = event.reply.step, event.start.team_forwards
        self.finisher_passes += record.forwards
        self._steps.append(
            Step(
                kind="reader",
                worker=None,
                name=None,
                number=None,
                index=None,
                fed=event.fed,
                text=event.reply.text,
                fed_tokens=record.fed_tokens,
                output_tokens=record.output_tokens,
                start_pass=start,
                end_pass=start + record.forwards,
                start_seconds=event.began - self.began,
                end_seconds=self._now(),
                finish=record.finish_type,
            )
        )

    def _add(
        self,
        kind: str,
        worker: int | None,
        fed: str,
        text: str,
        record: StepRecord,
        finish: str,
    ) -> None:
        start, seconds = self._start(worker)
        self._live.pop(worker, None) if worker is not None else None
        self._steps.append(
            Step(
                kind=kind,
                worker=worker,
                name=record.name,
                number=record.number,
                index=record.index,
                fed=fed,
                text=text,
                fed_tokens=record.fed_tokens,
                output_tokens=record.output_tokens,
                start_pass=min(start, record.team_forwards),
                end_pass=record.team_forwards,
                start_seconds=seconds,
                end_seconds=self._now(),
                history_start=record.history_start,
                history_published=record.history_published,
                finish=finish,
            )
        )

    def _start(self, worker: int | None) -> tuple[int, float]:
        if worker is None:
            return self.passes, self._now()
        return self._starts.get(worker, (self.passes, self._now()))

    def _advance(self, passes: int) -> None:
        self.passes = max(self.passes, passes)

    def _now(self) -> float:
        return time.monotonic() - self.began
