"""A record of what each forward processed, for replaying it in an oracle.

Off unless the environment variable HOGWILD_RECORD names a file; with data parallelism
each replica has its own, whose name ends in ``.dp0``, ``.dp1``, ... One JSON object a line:

- ``{"event": "open", "team", "workers", "layout"}``, then ``"part"`` with ``kind``
  (prompt, header_others, header_own), ``tokens`` and ``base``;
- ``{"event": "forward", "forward", "rows": [...]}``: one row per request in the batch,
  with ``rid``, ``team``, ``worker``, ``kind`` (``plain`` for an ordinary request),
  ``tokens`` fed, ``position`` of the first one, and ``view``, the view's length;
- ``"publish"`` (``rid``, ``worker``, ``index``), ``"drop"``, ``"end_reader"``, ``"close"``.

Events stand in the order in which they take effect. An aborting step may still have rows
after its ``doom`` event; nobody else sees them.
"""

from __future__ import annotations

import json
import os
from array import array
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from runtime_patch.attention.views import View
from runtime_patch.scheduler.step_req import StepReq
from runtime_patch.scheduler.team import Team
from runtime_patch.team_request import Kind

VARIABLE = "HOGWILD_RECORD"


class ForwardLog:
    """Appends to the record; does nothing without a file."""

    def __init__(self, path: str | None):
        self._file = Path(path).open("a", buffering=1) if path else None
        self._forwards = 0
        self._aborting: set[str] = set()

    @classmethod
    def from_environment(cls) -> ForwardLog:
        """This process's record. Ranks of one tensor-parallel group see the same forwards;
        the first one keeps the record."""
        from sglang.srt.runtime_context import get_parallel

        path, parallel = os.environ.get(VARIABLE), get_parallel()
        if not path or parallel.attn_tp_rank != 0:
            return cls(None)
        replicated = parallel.num_dp_ranks > 1
        return cls(f"{path}.dp{parallel.dp_rank or 0}" if replicated else path)

    def event(self, event: str, team: str, **fields: Any) -> None:
        self._write({"event": event, "team": team, **fields})

    def part(self, team: Team, kind: Kind, tokens: array) -> None:
        if self._file:
            base = team.part_segment(kind).base
            self.event("part", team.name, kind=str(kind), tokens=list(tokens), base=base)

    def forward(
        self,
        writers: Mapping[str, StepReq],
        rids: list[str],
        rows: list[int],
        views: list[View],
        token_of_row: torch.Tensor,
    ) -> None:
        if not self._file:
            return
        for writer in writers.values():
            if writer.aborting and writer.rid not in self._aborting:
                self._aborting.add(writer.rid)
                self.event("doom", writer.team, rid=writer.rid, worker=writer.worker)
        tokens, lines, first = token_of_row.tolist(), [], 0
        for rid, count, view in zip(rids, rows, views, strict=True):
            writer = writers.get(rid)
            lines.append(
                {
                    "rid": rid,
                    "team": writer.team if writer else None,
                    "worker": writer.worker if writer else None,
                    "kind": str(writer.kind) if writer else "plain",
                    "tokens": tokens[first : first + count],
                    "position": view.position,
                    "view": len(view),
                }
            )
            first += count
        self._write({"event": "forward", "forward": self._forwards, "rows": lines})
        self._forwards += 1

    def _write(self, line: dict) -> None:
        if self._file:
            self._file.write(json.dumps(line) + "\n")
