"""What the server process asks of a team beside writing: open, close, abort, ..."""

from __future__ import annotations

from collections.abc import Callable
from http import HTTPStatus
from typing import Any

from runtime_patch.errors import TeamError
from runtime_patch.scheduler.step_queue import queue_ready
from runtime_patch.scheduler.step_req import StepReq
from runtime_patch.scheduler.team import Team
from runtime_patch.scheduler.team_store import TeamStore
from runtime_patch.team_request import Kind


class TeamCommands:
    """The commands of ``messages.TeamCommand``; each returns the reply's result.

    abort: aborts a request, wherever it is. enqueue: puts one into SGLang's queue.
    """

    def __init__(
        self,
        store: TeamStore,
        abort: Callable[[str], None],
        enqueue: Callable[[StepReq], None],
    ):
        self._store = store
        self._abort = abort
        self._enqueue = enqueue

    def open(
        self, name: str, workers: int, layout: str, headers_after_prompt: bool, key: str = ""
    ) -> dict[str, Any]:
        if name in self._store.teams:
            raise TeamError(f"team {name} is open already", HTTPStatus.CONFLICT)
        try:
            self._store.teams[name] = Team(name, workers, layout, headers_after_prompt, key=key)
        except ValueError as error:
            raise TeamError(str(error)) from error
        self._store.log.event("open", name, workers=workers, layout=layout)
        return {}

    def close(self, name: str, reason: str = "request") -> dict[str, Any]:
        """Abort what is live, then give everything back."""
        team = self._store.find(name)
        if team.closing is None:
            team.closing = reason
            parts = [rid for rid, (owner, _) in self._store.parts.items() if owner is team]
            for rid in (*(writer.rid for writer in team.writers()), *parts):
                self._abort(rid)
        self._store.finish_closing(team)
        return {}

    def close_all(self, reason: str) -> None:
        for name in list(self._store.teams):
            self.close(name, reason)

    def abort(self, name: str, worker: int) -> dict[str, Any]:
        writer = self._store.find(name).live.get(worker)
        if writer is not None:
            self._abort(writer.rid)
        return {"aborted": writer is not None}

    def lockstep(self, name: str, workers: list[int]) -> dict[str, Any]:
        """From now on the team's forwards wait for the next steps of these workers."""
        team = self._store.find(name)
        team.lockstep, team.waiting_since = set(workers), None
        queue_ready(team, self._enqueue)
        return {}

    def inspect(self, name: str) -> dict[str, Any]:
        team = self._store.find(name)
        return {
            "history_tokens": team.history_tokens,
            "team_forwards": team.forwards,
            "readers": sum(writer.kind is Kind.READER for writer in team.others.values()),
            "kv_tokens": team.kv_tokens,
        }
