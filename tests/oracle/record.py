"""Replays the record of a running server in the dense oracle.

The record (environment variable HOGWILD_RECORD) says which tokens each forward fed for
which request and when steps were published or dropped. What a row reads is worked out
here from the definition; of the server's own bookkeeping only the view's length is
looked at, and only to compare it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from tests.oracle.decoder import Decoder
from tests.oracle.dense import Block, Row, forward
from tests.oracle.team import Team


class RecordError(Exception):
    """The record contradicts itself or the definition."""


@dataclass(frozen=True)
class Prediction:
    """What the oracle makes of one row of one forward.

    tokens: what the row fed; the first is the request's token number ``position``.
    logits: float64 ``[fed, vocabulary]``, behind each of them.
    """

    rid: str
    kind: str
    position: int
    tokens: list[int]
    logits: torch.Tensor


@dataclass
class _Writer:
    """A team's request: its own tokens, and whether the others still see them."""

    team: Team
    kind: str
    worker: int | None
    block: Block
    doomed: bool = False

    def view(self) -> list[Block]:
        if self.worker is not None:
            return self.team.view(self.worker, self.block)
        if self.kind == "reader":
            return self.team.reader_view(self.block)
        return self.team.voice_view(self.block)


def read_record(path: Path) -> list[dict]:
    """The record's complete lines; the server may be writing the last one."""
    return [json.loads(line) for line in path.read_text().splitlines(True) if line.endswith("\n")]


def replay_record(
    lines: Sequence[dict], decoder: Decoder, prompts: Mapping[str, Sequence[int]]
) -> Iterator[Prediction]:
    """Predictions for all rows of teams' requests, and of the ordinary ones in ``prompts``
    (request id to its prompt's tokens, of which the server may have cached a part)."""
    replay = _Replay(decoder, prompts)
    for line in lines:
        if line["event"] == "forward":
            yield from replay.forward(line)
        else:
            replay.event(line)


class _Replay:
    def __init__(self, decoder: Decoder, prompts: Mapping[str, Sequence[int]]) -> None:
        self._decoder = decoder
        self._prompts = prompts
        self._teams: dict[str, Team] = {}
        self._writers: dict[str, _Writer] = {}
        self._plain: dict[str, Block] = {}
        self._ended: dict[str, int] = {}  # by team: the last worker published since a forward

    def event(self, line: dict) -> None:
        kind, name = line["event"], line["team"]
        if kind == "open":
            self._teams[name] = Team(self._decoder, line["workers"], line["layout"])
        elif kind == "part":
            self._teams[name].prefill(line["kind"], line["tokens"], after_prompt=line["base"] > 0)
        elif kind == "doom":
            self._hide(line["rid"])
        elif kind == "publish":
            self._publish(line)
        elif kind in ("drop", "end_reader"):
            self._hide(line["rid"])
            self._writers.pop(line["rid"], None)
        elif kind == "close":
            if any(writer.team is self._teams[name] for writer in self._writers.values()):
                raise RecordError(f"team {name} closed with live writers")
            del self._teams[name]
        else:
            raise RecordError(f"unknown event {kind!r}")

    def forward(self, line: dict) -> Iterator[Prediction]:
        entries = [row for row in line["rows"] if row["team"] or row["rid"] in self._prompts]
        if not entries:
            return
        blocks = [self._block(row) for row in entries]
        rows = []
        for entry, block in zip(entries, blocks, strict=True):
            writer = self._writers.get(entry["rid"])
            rows.append(Row(entry["tokens"], writer.view() if writer else [block]))
        results = forward(self._decoder, rows)
        self._ended.clear()
        for entry, row, logits in zip(entries, rows, results, strict=True):
            length = sum(map(len, row.view))
            if entry["view"] != length:
                raise RecordError(
                    f"forward {line['forward']}: {entry['kind']} {entry['rid']} had a view of "
                    f"{entry['view']} tokens, by the definition it has {length}"
                )
            yield Prediction(
                entry["rid"], entry["kind"], entry["position"], entry["tokens"], logits
            )

    def _block(self, row: dict) -> Block:
        """The row's own block, made at its first row."""
        rid, position = row["rid"], row["position"]
        if row["team"] is None:
            return self._plain_block(rid, position)
        writer = self._writers.get(rid)
        if writer is None:
            team, worker = self._teams[row["team"]], row["worker"]
            block = team.begin(worker) if row["kind"] == "step" else Block()
            writer = self._writers[rid] = _Writer(team, row["kind"], worker, block)
        if position != len(writer.block):
            raise RecordError(
                f"{row['kind']} {rid} feeds at {position} after {len(writer.block)} tokens"
            )
        return writer.block

    def _plain_block(self, rid: str, position: int) -> Block:
        """Tokens before ``position`` that were not fed came from the server's cache, or the
        request was taken back and starts again."""
        known = self._plain.get(rid, Block())
        if len(known) != position:
            tokens = [*known.tokens, *self._prompts[rid][len(known) :]][:position]
            if len(tokens) < position:
                raise RecordError(f"request {rid} feeds at {position}, {len(tokens)} are known")
            known = Block()
            if tokens:
                forward(self._decoder, [Row(tokens, [known])])
        self._plain[rid] = known
        return known

    def _publish(self, line: dict) -> None:
        writer = self._writers.pop(line["rid"])
        if len(writer.team.published) != line["index"]:
            raise RecordError(
                f"{line['rid']} was published as number {line['index']}, "
                f"{len(writer.team.published)} were published before"
            )
        worker = -1 if writer.worker is None else writer.worker
        if self._ended.get(line["team"], -1) > worker:
            raise RecordError(f"{line['rid']} was published after a higher worker's step")
        self._ended[line["team"]] = worker
        if writer.kind == "step":
            writer.team.publish(writer.worker)
        elif writer.kind == "say":
            writer.team.say(writer.worker, writer.block)
        else:
            raise RecordError(f"a {writer.kind} was published")

    def _hide(self, rid: str) -> None:
        writer = self._writers.get(rid)
        if writer is not None and writer.kind == "step" and not writer.doomed:
            writer.team.drop(writer.worker)
            writer.doomed = True
