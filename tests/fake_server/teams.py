"""Teams of the fake server: live steps advance together, one token a forward."""

from __future__ import annotations

import queue
import threading
import time
from dataclasses import dataclass, field
from typing import Any

from runtime_patch.scheduler.end_rule import ends_step
from tests.fake_server.model import END, Script, Words, Writing

LAYOUTS = ["combined", "interleaved", "contiguous", "independent"]


class Refused(Exception):
    def __init__(self, status: int, message: str, kind: str = "bad_request") -> None:
        super().__init__(message)
        self.status, self.kind = status, kind


@dataclass
class Row:
    """A live step or reader. out: messages for the connection that waits."""

    team: Team
    worker: int | None
    reader: bool
    fed: list[int]
    sampling: dict[str, Any]
    end: str
    script: list[int]
    number: int | None
    until: int | None = None
    separated: list[int] | None = None
    history_start: int = 0
    output: list[int] = field(default_factory=list)
    forwards: int = 0
    started: bool = False
    out: queue.Queue = field(default_factory=queue.Queue)

    def record(self, words: Words, **more: Any) -> dict[str, Any]:
        return {
            "team": self.team.name,
            "worker": self.worker,
            "name": None if self.worker is None else self.team.names[self.worker],
            "reader": self.reader,
            "number": self.number,
            "fed_tokens": len(self.fed),
            "output_tokens": len(self.output),
            "forwards": self.forwards,
            "team_forwards": self.team.forwards,
            "history_start": self.history_start,
            **more,
        }


@dataclass
class Team:
    name: str
    names: list[str]
    prompt: list[int]
    layout: str
    seed: int | None
    headers: dict[str, str]
    idle_timeout: float | None
    forwards: int = 0
    closed: bool = False
    steps: list[dict[str, Any]] = field(default_factory=list)
    carry: dict[int, list[int]] = field(default_factory=dict)
    live: dict[int, Row] = field(default_factory=dict)
    queued: dict[int, Row] = field(default_factory=dict)
    after_a_break: set[int] = field(default_factory=set)
    turn_over: set[int] = field(default_factory=set)
    lockstep: set[int] = field(default_factory=set)
    lockstepped: bool = False
    readers: list[Row] = field(default_factory=list)
    listeners: list[queue.Queue] = field(default_factory=list)

    @property
    def history(self) -> int:
        return len(self.prompt) + sum(step["tokens"] for step in self.steps)

    def tell(self, event: dict[str, Any]) -> None:
        for listener in self.listeners:
            listener.put(event)


class Board:
    """All teams, and the thread that runs forwards.

    gathered: a team's forwards wait until all its workers that have written before have a
    live step, so that runs do not depend on the clock (at most ``patience`` seconds).
    """

    def __init__(self, words: Words, script: Script, *, gathered: bool, context: int) -> None:
        self.words, self.script, self.context = words, script, context
        self.gathered, self.patience = gathered, 0.25
        self.teams: dict[str, Team] = {}
        self.pause = 0.0
        self.changed = threading.Condition()
        self._stop = False
        self._waiting_since: dict[str, float] = {}
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        with self.changed:
            self._stop = True
            self.changed.notify_all()
        self._thread.join()

    def find(self, name: str) -> Team:
        if name not in self.teams:
            raise Refused(404, f"unknown team {name!r}", "unknown_team")
        if self.teams[name].closed:
            raise Refused(410, f"team {name} is closed", "team_closed")
        return self.teams[name]

    def worker(self, team: Team, worker: Any) -> int:
        if isinstance(worker, str) and worker in team.names:
            return team.names.index(worker)
        if not isinstance(worker, int) or not 0 <= worker < len(team.names):
            raise Refused(400, f"worker {worker!r} of a team of {len(team.names)}")
        return worker

    def write(self, team: Team, body: dict[str, Any]) -> Row:
        """Admits a step or a reader."""
        reader = bool(body.get("reader"))
        worker = body.get("worker")
        if worker is not None:
            worker = self.worker(team, worker)
        elif not reader:
            raise Refused(400, "a step needs a worker")
        with self.changed:
            fed = body.get("input_ids") or self.words.encode(body.get("text") or "")
            number = None if reader else 1 + sum(s["worker"] == worker for s in team.steps)
            sampling = dict(body.get("sampling_params") or {})
            row = Row(team, worker, reader, fed, sampling, body.get("end", "sentence"), [], number)
            row.until = body.get("until_forwards")
            if body.get("separator") is not None:
                row.separated = self.words.encode(body["separator"] + body["text"])
            if not reader and worker in team.live:
                if not body.get("after_live"):
                    raise Refused(409, f"{team.names[worker]} has a live step", "step_conflict")
                if worker in team.queued:
                    raise Refused(409, f"{team.names[worker]} has a queued step", "queued_step")
                row.number += 1
            if body.get("number") not in (None, row.number):
                raise Refused(409, f"this would be step {row.number}", "not_begun")
            if body.get("after_live") and worker in team.turn_over and worker not in team.live:
                raise Refused(409, "its turn is over", "not_begun")
            if row.until is not None and team.forwards >= row.until:
                raise Refused(409, "its forwards are used", "out_of_forwards")
            if row.number == number:
                self._begin(row)
            else:
                team.queued[worker] = row
            self.changed.notify_all()
        return row

    def _begin(self, row: Row) -> None:
        """Feeds a row what its worker carries, and asks the script what it writes."""
        team, worker = row.team, row.worker
        if worker is not None:
            if row.separated is not None and worker not in team.after_a_break:
                row.fed = row.separated
            row.fed = [*team.carry.get(worker, []), *row.fed]
        if not row.fed:
            raise Refused(400, "at least one token must be fed")
        fed, view = self.words.decode(row.fed), self.view(team, worker)
        text = self.script(
            Writing(None if row.reader else worker, row.number, fed, view, row.sampling)
        )
        row.script = self.words.encode(text) or [0]
        row.history_start = team.history
        if row.reader:
            team.readers.append(row)
        else:
            team.live[worker] = row

    def lockstep(self, team: Team, workers: list[Any]) -> None:
        with self.changed:
            team.lockstep = {self.worker(team, worker) for worker in workers}
            team.lockstepped |= bool(workers)
            self.changed.notify_all()

    def view(self, team: Team, worker: int | None) -> str:
        """Text of the combined view before the writer's own step."""
        others = [row for w, row in sorted(team.live.items()) if w != worker]
        ids = [*team.prompt, *(i for step in team.steps for i in step["ids"])]
        ids += [i for row in others for i in [*row.fed, *row.output]]
        return self.words.decode(ids)

    def say(self, team: Team, text: str, worker: int | None) -> dict[str, Any]:
        with self.changed:
            if worker is not None and worker in team.live:
                raise Refused(409, f"{team.names[worker]} has a live step", "step_conflict")
            ids = self.words.encode(text)
            if worker is not None:
                ids = [*team.carry.pop(worker, []), *ids]
                team.after_a_break.discard(worker)
            row = Row(team, worker, False, ids, {}, "none", [], None)
            row.history_start = team.history
            if worker is not None:
                row.number = 1 + sum(s["worker"] == worker for s in team.steps)
            return self._publish(row, ids, {"type": "said"})

    def abort(self, team: Team, worker: int, number: int | None = None) -> bool:
        with self.changed:
            row = team.live.get(worker)
            if row is None or number not in (None, row.number):
                return False
            del team.live[worker]
            self._fail(row, 499, "the step was aborted", "aborted")
            self._drop_queued(team, worker)
            team.tell({"type": "dropped", "worker": worker, "reason": "aborted"})
            return True

    def drop(self, row: Row) -> None:
        """The client of a live step or reader has gone."""
        with self.changed:
            if row in row.team.readers:
                row.team.readers.remove(row)
            elif row.team.live.get(row.worker) is row:
                del row.team.live[row.worker]
                self._drop_queued(row.team, row.worker)
                row.team.tell({"type": "dropped", "worker": row.worker, "reason": "gone"})

    def close(self, team: Team, reason: str) -> None:
        with self.changed:
            if team.closed:
                return
            team.closed = True
            for row in [*team.live.values(), *team.queued.values(), *team.readers]:
                self._fail(row, 410, f"team {team.name} is closed", "team_closed")
            team.live.clear()
            team.queued.clear()
            team.readers.clear()
            team.tell({"type": "closed", "reason": reason})

    def _fail(self, row: Row, status: int, message: str, kind: str) -> None:
        error = {"message": message, "type": kind, "status": status}
        row.out.put({"type": "error", "error": error})

    def _drop_queued(self, team: Team, worker: int, kind: str = "not_begun") -> None:
        row = team.queued.pop(worker, None)
        if row is not None:
            self._fail(row, 409, "there is nothing to go on from", kind)

    def _begin_queued(self, team: Team, before: Row, finish: str) -> None:
        row = team.queued.get(before.worker)
        if row is None:
            return
        if row.until is not None and team.forwards >= row.until:
            self._drop_queued(team, before.worker, "out_of_forwards")
        elif finish == "eos":
            self._drop_queued(team, before.worker)
        else:
            del team.queued[before.worker]
            self._begin(row)

    def _run(self) -> None:
        while True:
            with self.changed:
                while not self._stop and not self._forward():
                    self.changed.wait(0.01)
                if self._stop:
                    return
            time.sleep(self.pause)

    def _forward(self) -> bool:
        rows = [row for team in self.teams.values() for row in self._ready(team)]
        if not rows:
            return False
        for row in rows:
            if not row.started:
                row.started = True
                row.out.put({"type": "start", "step": row.record(self.words)})
        worked = {row.team.name for row in rows if not row.reader}
        for name in worked:
            self.teams[name].forwards += 1
        for row in sorted(rows, key=lambda row: -1 if row.worker is None else row.worker):
            self._advance(row)
        return True

    def _ready(self, team: Team) -> list[Row]:
        live = list(team.live.values())
        wrote = {step["worker"] for step in team.steps if step["worker"] is not None}
        missing = (team.lockstep if team.lockstepped else wrote) - set(team.live)
        if not (self.gathered and live and missing):
            self._waiting_since.pop(team.name, None)
            return [*live, *team.readers]
        since = self._waiting_since.setdefault(team.name, time.monotonic())
        waiting = time.monotonic() - since < (5 if team.lockstepped else self.patience)
        return [*([] if waiting else live), *team.readers]

    def _advance(self, row: Row) -> None:
        row.forwards += 1
        limit = row.sampling.get("max_new_tokens", 128)
        if limit == 0:
            self._end(row, {"type": "length"}, "")
            return
        token = row.script[len(row.output) % len(row.script)]
        if len(row.output) >= len(row.script):
            token = 0 if row.sampling.get("min_new_tokens", 0) <= len(row.output) else token
        row.output.append(token)
        newest = self.words.decode([token])
        text = self.words.decode(row.output)
        shown = text.replace(END, "")
        stops = row.sampling.get("stop") or []
        stops = [stops] if isinstance(stops, str) else stops
        hit = next((stop for stop in stops if stop in text), None)
        if hit is not None:
            self._end(row, {"type": "stop"}, text[: text.index(hit)])
        elif token == 0:
            self._end(row, {"type": "eos"}, shown)
        elif row.end == "sentence" and ends_step(self.words.decode(row.fed) + text, newest):
            self._end(row, {"type": "sentence"}, shown, newest)
        elif len(row.output) >= limit or (row.until is not None and row.team.forwards >= row.until):
            self._end(row, {"type": "length"}, shown, newest)
        else:
            row.out.put({"type": "text", "text": newest, "output_ids": [token]})
            row.team.tell({"type": "text", "worker": row.worker, "text": newest})

    def _end(self, row: Row, finish: dict[str, Any], text: str, last: str = "") -> None:
        team = row.team
        if last:
            row.out.put({"type": "text", "text": last, "output_ids": row.output[-1:]})
        if row.reader:
            team.readers.remove(row)
            step = row.record(self.words, index=None, published_tokens=0, finish=finish)
        else:
            del team.live[row.worker]
            team.carry[row.worker] = row.output[-1:]
            team.turn_over.discard(row.worker)
            if finish["type"] == "eos":
                team.turn_over.add(row.worker)
            team.after_a_break.discard(row.worker)
            if finish["type"] == "sentence":
                team.after_a_break.add(row.worker)
            step = self._publish(row, [*row.fed, *row.output][:-1], finish)
            if finish["type"] == "eos" or (row.until is not None and team.forwards >= row.until):
                team.lockstep.discard(row.worker)
        row.out.put({"type": "end", "text": text, "output_ids": row.output, "step": step})
        if not row.reader:
            self._begin_queued(team, row, finish["type"])

    def _publish(self, row: Row, ids: list[int], finish: dict[str, Any]) -> dict[str, Any]:
        team = row.team
        record = row.record(
            self.words,
            index=len(team.steps),
            published_tokens=len(ids),
            history_published=team.history,
            finish=finish,
        )
        team.steps.append(
            {
                "index": len(team.steps),
                "worker": row.worker,
                "name": record["name"],
                "number": row.number,
                "tokens": len(ids),
                "text": self.words.decode(ids),
                "ids": ids,
            }
        )
        kind = "said" if finish["type"] == "said" else "published"
        team.tell({"type": kind, "worker": row.worker, "number": row.number})
        return record
