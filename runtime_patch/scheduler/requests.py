"""A team's requests from admission to their end outside a forward."""

from __future__ import annotations

from array import array
from collections.abc import Callable
from http import HTTPStatus
from typing import Any

import torch

from runtime_patch.attention.views import Segment
from runtime_patch.errors import TeamError, not_begun
from runtime_patch.scheduler.admission import (
    DROPPED,
    WORKER_DONE,
    check_fed,
    check_forwards,
    check_view,
)
from runtime_patch.scheduler.step_queue import queue_ready
from runtime_patch.scheduler.step_req import Stage, StepReq
from runtime_patch.scheduler.team import StoredPart, Team
from runtime_patch.scheduler.team_store import TeamStore
from runtime_patch.scheduler.team_views import TeamViews
from runtime_patch.team_request import Kind


class TeamRequests:
    """Binds requests to their teams, queues them when they may run, and drops them.

    enqueue: puts a request into SGLang's queue.
    refuse: ends a request that is in no queue with an error.
    context_length: longest view, in tokens.
    """

    def __init__(
        self,
        store: TeamStore,
        enqueue: Callable[[StepReq], None],
        refuse: Callable[[StepReq, TeamError], None],
        context_length: int,
    ):
        self._store = store
        self._enqueue = enqueue
        self._refuse = refuse
        self._context_length = context_length

    def belongs(self, req: Any) -> bool:
        """Is it a team's request (a writer, or a prompt or header being prefilled)?"""
        return req.rid in self._store.writers or req.rid in self._store.parts

    def require_key(self, name: str, key: str) -> None:
        """Raise TeamError unless the request comes from the server process's team service."""
        if self._store.find(name).key != key:
            raise TeamError("custom_params.hogwild belongs to the /hogwild routes")

    # The prompt and the headers: ordinary requests whose tokens the team keeps.

    def expect_part(self, rid: str, name: str, kind: Kind) -> None:
        """The ordinary request ``rid`` prefills the team's prompt or a header."""
        self._store.parts[rid] = (self._store.find(name), kind)

    def keep_part(self, req: Any) -> None:
        """A finished request's tokens are in the tree at req.last_node: keep them there."""
        if req.rid not in self._store.parts:
            return
        team, kind = self._store.parts.pop(req.rid)
        if team.closing is not None:
            return
        cache = self._store.radix_cache
        tokens, base = array("q", req.origin_input_ids), 0
        slots = cache.path_device_indices(req.last_node)
        if kind is not Kind.PROMPT and team.headers_after_prompt:
            base = len(team.parts[Kind.PROMPT].tokens)
            tokens, slots = tokens[base:], slots[base:]
        segment = Segment((team.name, kind), slots.clone(), base)
        lock = cache.lock(req.last_node)
        team.parts[kind] = StoredPart(segment, tokens, req.last_node, lock)
        self._store.log.part(team, kind, tokens)

    def lose_part(self, rid: str) -> None:
        """A prompt or header ended without being kept; the server process is told by SGLang."""
        self._store.parts.pop(rid, None)

    # Steps, readers and outside voices.

    def admit(self, req: StepReq) -> None:
        """Bind a new step, reader or say to its team, live or ahead. Raises TeamError."""
        team, purpose = self._store.find(req.team), req.purpose
        if team.closing is not None or len(team.parts) == 0:
            raise TeamError(f"team {req.team} is closed", HTTPStatus.GONE)
        if req.worker is not None and not 0 <= req.worker < team.workers:
            raise TeamError(f"team {req.team} has no worker {req.worker}")
        live = team.live.get(req.worker)
        if purpose.predecessor not in (None, team.newest.get(req.worker), live and live.rid):
            raise not_begun(DROPPED)
        if purpose.ahead and req.worker in team.done and live is None:
            raise not_begun(WORKER_DONE)
        check_forwards(team, req)
        try:
            if purpose.ahead and live is not None:
                team.add_ahead(req)
                req.stage = Stage.AHEAD
            else:
                self._continue(team, req)
                team.add(req)
        except ValueError as error:
            raise TeamError(str(error), HTTPStatus.CONFLICT) from error
        self._store.writers[req.rid] = req

    def _continue(self, team: Team, req: StepReq) -> None:
        """The request goes on where its worker's text ends now. Raises TeamError."""
        carried = team.carried.get(req.worker) if req.worker is not None else None
        req.continue_from(carried, req.worker in team.separated)
        check_fed(req)
        view = sum(map(len, TeamViews(team, self.written()).view(req)))
        check_view(view, req, self._context_length)

    def offer(self, req: StepReq) -> None:
        """SGLang would queue the request now: its grammar, if it has one, is compiled."""
        req.grammar_ready = True
        team = self._store.teams[req.team]
        self.queue_ready(team)
        if req.aborting and req.stage is not Stage.QUEUED:
            # What SGLang found wrong with it would otherwise wait with it.
            reason = req.to_finish
            self._refuse(req, TeamError(reason.message, reason.status_code or 400, reason.err_type))

    def queue_ready(self, team: Team) -> None:
        queue_ready(team, self._enqueue)

    def begin_ahead(self, team: Team, before: StepReq) -> None:
        """A step has been published: the one ahead of it is its worker's live one now."""
        req = team.ahead.pop(before.worker, None)
        if req is None:
            return
        team.add(req)
        req.stage = Stage.WAITING
        try:
            if before.ends_turn:
                raise not_begun(WORKER_DONE)
            check_forwards(team, req)
            self._continue(team, req)
        except TeamError as error:
            team.lockstep.discard(req.worker)
            self._refuse(req, error)

    def drop(self, req: StepReq, reason: str) -> None:
        """A writer ended without being published: nothing of it stays."""
        if req.rid not in self._store.writers:
            return
        team = self._store.remove(req)
        self._store.log.event("drop", team.name, rid=req.rid, worker=req.worker)
        self._store.emit("dropped", team.name, {"reason": reason, **self._store.counts(req)})
        if req.kind is Kind.STEP and req.worker in team.ahead and req.worker not in team.live:
            # What was ahead was meant to go on from the step that is gone.
            self._refuse(team.ahead[req.worker], not_begun(DROPPED))
        self._store.finish_closing(team)

    def report_refused(self, name: str, rid: str) -> None:
        """The request ``rid`` was for a team, but has not been bound to it."""
        self._store.emit("dropped", name, {"rid": rid, "reason": "refused"})

    def out_of_queue(self) -> list[StepReq]:
        """The writers that SGLang has in none of its queues."""
        return [
            req
            for req in self._store.writers.values()
            if req.grammar_ready and req.stage in (Stage.AHEAD, Stage.WAITING)
        ]

    def in_lockstep(self, req: Any) -> bool:
        writers, teams = self._store.writers, self._store.teams
        return req.rid in writers and req.worker in teams[req.team].lockstep

    def written(self, in_batch: dict[str, torch.Tensor] | None = None) -> dict[str, torch.Tensor]:
        """KV slots of every live writer, int64; those of requests in the batch are given."""
        given = in_batch or {}
        rows = self._store.radix_cache.req_to_token_pool.req_to_token
        return {
            rid: rows[writer.kv.req_pool_idx, : writer.written].to(torch.int64)
            for rid, writer in self._store.writers.items()
            if rid not in given and writer.kv.holds_kv
        } | given
