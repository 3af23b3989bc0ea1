"""The teams of one scheduler, their writers, and the end of both."""

from __future__ import annotations

from collections.abc import Callable
from http import HTTPStatus
from typing import Any

from runtime_patch.errors import TeamError
from runtime_patch.scheduler.forward_log import ForwardLog
from runtime_patch.scheduler.radix_cache import HogwildRadixCache
from runtime_patch.scheduler.step_req import Stage, StepReq
from runtime_patch.scheduler.team import Team
from runtime_patch.team_request import Kind

Emit = Callable[[str, str, dict[str, Any]], None]


class TeamStore:
    """What commands, requests and forwards of teams work on.

    radix_cache: where KV is stored.
    emit: sends a TeamEvent's (kind, team, data) to the server process.
    log: what happened, for replay.
    """

    def __init__(self, radix_cache: HogwildRadixCache, emit: Emit, log: ForwardLog):
        self.radix_cache = radix_cache
        self.emit = emit
        self.log = log
        self.teams: dict[str, Team] = {}
        # Live steps, those ahead, readers and outside voices, by request id.
        self.writers: dict[str, StepReq] = {}
        # Ordinary requests that prefill a team's prompt or header, by request id.
        self.parts: dict[str, tuple[Team, Kind]] = {}

    def find(self, name: str) -> Team:
        if name not in self.teams:
            raise TeamError(f"unknown team {name!r}", HTTPStatus.NOT_FOUND)
        return self.teams[name]

    def remove(self, req: StepReq) -> Team:
        """A writer has ended."""
        del self.writers[req.rid]
        req.stage = Stage.ENDED
        team = self.teams[req.team]
        team.remove(req)
        return team

    def counts(self, req: StepReq) -> dict[str, Any]:
        """What every event of a request says of it."""
        return {
            "rid": req.rid,
            "forwards": req.forwards,
            "team_forwards": self.teams[req.team].forwards,
            "history_start": req.history_start,
            "fed_tokens": len(req.origin_input_ids),
            "output_tokens": len(req.output_ids_through_stop),
        }

    def finish_closing(self, team: Team) -> None:
        """Give everything back once a team that is being closed has no writer left."""
        if team.closing is None or not team.idle or team.name not in self.teams:
            return
        del self.teams[team.name]
        self.parts = {rid: part for rid, part in self.parts.items() if part[0] is not team}
        self.radix_cache.unlock(team.tip_lock)
        self.radix_cache.prune([step.node for step in team.published])
        for part in team.parts.values():
            self.radix_cache.unlock(part.lock)
        self.log.event("close", team.name)
        self.emit("closed", team.name, {"reason": team.closing})
