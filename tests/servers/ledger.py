"""What a server's record says about each request: the counts that its replies report."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field


@dataclass
class Entry:
    """One team's request. ended: "publish", "drop", "end_reader", or None while it is live.

    history_start, history_published: tokens of prompt and published steps at its first
    forward and when it was published. team_forwards: the team's count when it ended.
    """

    team: str
    kind: str
    worker: int | None
    history_start: int
    fed: list[int] = field(default_factory=list)
    pieces: list[int] = field(default_factory=list)
    ended: str | None = None
    index: int | None = None
    history_published: int | None = None
    team_forwards: int = 0


class Ledger:
    """entries by request id; history, forwards, published and parts by team."""

    def __init__(self, lines: Iterable[dict]):
        self.entries: dict[str, Entry] = {}
        self.history: dict[str, int] = defaultdict(int)
        self.forwards: dict[str, int] = defaultdict(int)
        self.published: dict[str, list[str]] = defaultdict(list)
        self.parts: dict[str, dict[str, list[int]]] = defaultdict(dict)
        for line in lines:
            if line["event"] == "forward":
                self._forward(line["rows"])
            else:
                self._event(line)

    def _forward(self, rows: list[dict]) -> None:
        rows = [row for row in rows if row["team"]]
        for row in rows:
            entry = self.entries.setdefault(
                row["rid"],
                Entry(row["team"], row["kind"], row["worker"], self.history[row["team"]]),
            )
            entry.fed += row["tokens"]
            entry.pieces.append(len(row["tokens"]))
        for team in {row["team"] for row in rows if row["kind"] == "step"}:
            self.forwards[team] += 1

    def _event(self, line: dict) -> None:
        kind, team = line["event"], line["team"]
        if kind == "part":
            self.parts[team][line["kind"]] = line["tokens"]
            if line["kind"] == "prompt":
                self.history[team] = len(line["tokens"])
        entry = self.entries.get(line.get("rid", ""))
        if entry is None or kind == "doom":
            return
        entry.ended, entry.team_forwards = kind, self.forwards[team]
        if kind == "publish":
            entry.index, entry.history_published = line["index"], self.history[team]
            self.history[team] += len(entry.fed)
            self.published[team].append(line["rid"])
