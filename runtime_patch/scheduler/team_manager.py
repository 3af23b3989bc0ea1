"""The team book: which teams a scheduler holds, and every change to them.

One per scheduler. SGLang calls it through the patches in ``runtime_patch/patches``; it
calls SGLang's tree, pool and sockets and nothing else.
"""

from __future__ import annotations

import time
from array import array
from collections.abc import Callable, Iterable
from http import HTTPStatus
from typing import Any

import torch

from runtime_patch.attention.views import Segment, View
from runtime_patch.scheduler import lockstep
from runtime_patch.scheduler.admission import (
    DROPPED,
    TURN_OVER,
    Requests,
    TeamError,
    check_passes,
    check_view,
    not_begun,
)
from runtime_patch.scheduler.forward_log import Recorder
from runtime_patch.scheduler.radix_cache import HogwildRadixCache
from runtime_patch.scheduler.step_req import FinishSentence, StepReq
from runtime_patch.scheduler.team import Kind, PublishedStep, StoredPart, Team, TeamState


class TeamBook:
    """Teams by name and their live writers by request id.

    emit: sends a TeamEvent's (kind, team, data) to the server process.
    requests: SGLang's side of the requests.
    context_length: longest view, in tokens.
    """

    def __init__(
        self,
        tree: HogwildRadixCache,
        emit: Callable[[str, str, dict], None],
        requests: Requests,
        context_length: int,
        recorder: Recorder,
        many_ranks: bool = False,
    ):
        self._many_ranks = many_ranks
        self.tree = tree
        self.teams: dict[str, Team] = {}
        self.writers: dict[str, StepReq] = {}
        self.starved_rounds = 0
        self.teams_went_first = False
        self._pins: dict[str, tuple[Team, Kind]] = {}
        self._emit = emit
        self._requests = requests
        self._context_length = context_length
        self._recorder = recorder

    # Commands from the server process.

    def open(
        self, name: str, workers: int, layout: str, headers_after_prompt: bool, key: str = ""
    ) -> dict:
        if name in self.teams:
            raise TeamError(f"team {name} is open already", HTTPStatus.CONFLICT)
        try:
            self.teams[name] = Team(name, workers, layout, headers_after_prompt, key=key)
        except ValueError as error:
            raise TeamError(str(error)) from error
        self._recorder.event("open", name, workers=workers, layout=layout)
        return {}

    def close(self, name: str, reason: str = "request") -> dict:
        """Abort what is live, then give everything back."""
        team = self.find(name)
        if team.closing is None:
            team.closing = reason
            parts = [rid for rid, (owner, _) in self._pins.items() if owner is team]
            for rid in (*(writer.rid for writer in team.writers()), *parts):
                self._requests.abort(rid)
        self._finish_closing(team)
        return {}

    def abort(self, name: str, worker: int) -> dict:
        writer = self.find(name).live.get(worker)
        if writer is not None:
            self._requests.abort(writer.rid)
        return {"aborted": writer is not None}

    def lockstep(self, name: str, workers: list[int]) -> dict:
        """From now on the team's forwards wait for the next steps of these workers."""
        team = self.find(name)
        team.lockstep, team.waiting_since = set(workers), None
        self._release(team)
        return {}

    def inspect(self, name: str) -> dict:
        team = self.find(name)
        return {
            "history_tokens": team.history_tokens,
            "team_forwards": team.forwards,
            "readers": sum(writer.kind is Kind.READER for writer in team.others.values()),
            "kv_tokens": team.kv_tokens,
        }

    def find(self, name: str) -> Team:
        if name not in self.teams:
            raise TeamError(f"unknown team {name!r}", HTTPStatus.NOT_FOUND)
        return self.teams[name]

    def close_all(self, reason: str) -> None:
        for name in list(self.teams):
            self.close(name, reason)

    # Requests.

    def require_key(self, name: str, key: str) -> None:
        """Raise TeamError unless the request comes from the server process's team service."""
        if self.find(name).key != key:
            raise TeamError("custom_params.hogwild belongs to the /hogwild routes")

    def admit(self, req: StepReq, after_live: bool = False, behind: str | None = None) -> None:
        """Bind a new step, reader or say to its team.

        after_live: a step that begins with its worker's carried token, as soon as the
        worker's live step (if there is one) has been published.
        behind: request id of the worker's live step when this one was asked for. If it has
        been dropped meanwhile, this one is refused.

        A step that has to wait is marked as parked; the caller leaves it out of the queue."""
        team = self.find(req.team)
        if team.closing is not None or len(team.parts) == 0:
            raise TeamError(f"team {req.team} is closed", HTTPStatus.GONE)
        if req.worker is not None and not 0 <= req.worker < team.workers:
            raise TeamError(f"team {req.team} has no worker {req.worker}")
        live = team.live.get(req.worker)
        if behind not in (None, team.newest.get(req.worker), live and live.rid):
            raise not_begun(DROPPED)
        if after_live and req.worker in team.turn_over and req.worker not in team.live:
            raise not_begun(TURN_OVER)
        check_passes(team, req)
        try:
            if after_live and req.worker in team.live:
                team.queue(req)
                req.parked = True
            else:
                if after_live:
                    self._go_on(team, req)
                self._check_room(team, req)
                team.add(req)
        except ValueError as error:
            raise TeamError(str(error), HTTPStatus.CONFLICT) from error
        self.writers[req.rid] = req
        if req.worker in team.lockstep and not req.parked:
            req.parked = not team.together
            self._release(team)

    def _go_on(self, team: Team, req: StepReq) -> None:
        req.go_on_from(team.carried.get(req.worker), req.worker in team.after_a_break)

    def _begin_queued(self, team: Team, before: StepReq) -> None:
        """A step has been published: the one behind it is its worker's live one now. It
        joins the very next forward, unless the team waits for another worker's."""
        req = team.queued.pop(before.worker, None)
        if req is None:
            return
        team.add(req)
        try:
            if before.ends_turn:
                raise not_begun(TURN_OVER)
            self._go_on(team, req)
            check_passes(team, req)
            self._check_room(team, req)
        except TeamError as error:
            team.lockstep.discard(req.worker)
            self._requests.refuse(req, error)

    def _release(self, team: Team) -> None:
        lockstep.release(team, self._requests.enqueue)

    def _check_room(self, team: Team, req: StepReq) -> None:
        view = sum(map(len, TeamState(team, self._written({})).view(req)))
        check_view(view, req, self._context_length)

    def parked(self) -> list[StepReq]:
        return [req for req in self.writers.values() if req.parked]

    def belongs(self, req: Any) -> bool:
        """Is it a team's request (a writer, or a prompt or header being prefilled)?"""
        return req.rid in self.writers or req.rid in self._pins

    def tell_refused(self, name: str, rid: str) -> None:
        """The request ``rid`` was for a team, but the book did not take it."""
        self._emit("dropped", name, {"rid": rid, "reason": "refused"})

    def expect_part(self, rid: str, name: str, kind: Kind) -> None:
        """The ordinary request ``rid`` prefills the team's prompt or a header."""
        self._pins[rid] = (self.find(name), kind)

    def keep_part(self, req: Any) -> None:
        """A finished request's tokens are in the tree at req.last_node: keep them there."""
        if req.rid not in self._pins:
            return
        team, kind = self._pins.pop(req.rid)
        if team.closing is not None:
            return
        tokens, base = array("q", req.origin_input_ids), 0
        slots = self.tree.path_device_indices(req.last_node)
        if kind is not Kind.PROMPT and team.headers_after_prompt:
            base = len(team.parts[Kind.PROMPT].tokens)
            tokens, slots = tokens[base:], slots[base:]
        segment = Segment((team.name, kind), slots.clone(), base)
        lock = self.tree.lock(req.last_node)
        team.parts[kind] = StoredPart(segment, tokens, req.last_node, lock)
        self._recorder.part(team, kind, tokens)

    def lose_part(self, rid: str) -> None:
        """A prompt or header ended without being kept; the server process is told by SGLang."""
        self._pins.pop(rid, None)

    def take(self, req: StepReq, slots: torch.Tensor) -> None:
        """A finished step hands over its KV; it is published when the forward is settled."""
        req.taken = slots

    def drop(self, req: StepReq, reason: str) -> None:
        """A writer ended without being published: nothing of it stays."""
        if self.writers.pop(req.rid, None) is None:
            return
        team = self.teams[req.team]
        team.remove(req)
        self._recorder.event("drop", team.name, rid=req.rid, worker=req.worker)
        self._emit("dropped", team.name, {"rid": req.rid, "reason": reason, **self._counts(req)})
        if req.kind is Kind.STEP and req.worker in team.queued and req.worker not in team.live:
            # What was queued was meant to go on from the step that is gone.
            self._requests.refuse(team.queued[req.worker], not_begun(DROPPED))
        self._finish_closing(team)

    # Forwards.

    def views(
        self,
        rids: list[str],
        rows: list[int],
        written: dict[str, torch.Tensor],
        token_of_row: torch.Tensor,
    ) -> list[View]:
        """The views of one forward's requests, in batch order.

        rids, rows: the requests and how many query rows each has.
        written: KV slots of each request in the batch, new tokens included.
        token_of_row: the tokens fed, for the record.
        """
        written = self._written(written)
        views = []
        for rid, count in zip(rids, rows, strict=True):
            writer, slots = self.writers.get(rid), written[rid]
            if writer is None:
                parts = (Segment(rid, slots, 0),)
            else:
                parts = TeamState(self.teams[writer.team], written).view(writer)
            views.append(View(count, len(slots) - count, parts))
            if writer is not None:
                workers = self.teams[writer.team].workers
                writer.view_room = self._context_length - len(views[-1]) - workers
        self._recorder.forward(self, rids, rows, views, token_of_row)
        return views

    def _written(self, in_batch: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """KV slots of every live writer; those of requests in the batch are given."""
        rows = self.tree.req_to_token_pool.req_to_token
        return {
            rid: rows[writer.kv.req_pool_idx, : writer.written].to(torch.int64)
            for rid, writer in self.writers.items()
            if rid not in in_batch and writer.kv.holds_kv
        } | in_batch

    def in_lockstep(self, req: Any) -> bool:
        return req.rid in self.writers and req.worker in self.teams[req.team].lockstep

    def held(self, reqs: Iterable[Any], chunking: bool) -> list[int]:
        """Places of the running requests that sit out the next forward, see lockstep.py."""
        teams = [team for team in self.teams.values() if team.lockstep]
        for team in teams:
            # The clocks of tensor-parallel ranks differ, and they must decide alike.
            if lockstep.give_up(team, 0.0 if self._many_ranks else time.monotonic()):
                self._release(team)
        return lockstep.held_rows(reqs, {t.name for t in teams if lockstep.waits(t, chunking)})

    def count_forward(self, reqs: Iterable[Any]) -> None:
        """Count a forward for the requests and teams that had rows in it."""
        worked, reqs = set(), list(reqs)
        for req in reqs:
            if not isinstance(req, StepReq) or req.rid not in self.writers:
                continue
            team = self.teams[req.team]
            if req.history_start is None:
                req.history_start = team.history_tokens
                self._emit("start", team.name, {"rid": req.rid, **self._counts(req)})
            req.forwards += 1
            # In lockstep a doomed step may run while the others wait, which is no pass.
            if req.kind is Kind.STEP and not (team.lockstep and req.doomed):
                worked.add(team.name)
        for name in worked:
            self.teams[name].forwards += 1
        for req in reqs:
            if isinstance(req, StepReq) and req.until is not None and req.rid in self.writers:
                req.out_of_passes = self.teams[req.team].forwards >= req.until

    def settle(self, reqs: Iterable[Any]) -> None:
        """After a forward: publish or drop the steps that ended in it.

        Steps that end in the same forward are published in ascending worker order."""
        ended = [r for r in reqs if isinstance(r, StepReq) and r.rid in self.writers]
        ended = [req for req in ended if req.finished()]
        for req in sorted(ended, key=lambda r: -1 if r.worker is None else r.worker):
            if req.kind.publishes and req.taken is not None:
                self._publish(req)
            elif req.kind is Kind.READER and not req.doomed:
                self._end_reader(req)
            else:
                self.drop(req, "aborted")
        for team in {req.team for req in ended} & self.teams.keys():
            self._release(self.teams[team])

    # Inside.

    def _publish(self, req: StepReq) -> None:
        team = self.teams[req.team]
        tokens = array("q", [*req.origin_input_ids, *req.output_ids])[: len(req.taken)]
        history = team.history_tokens
        node, lock = self.tree.graft(
            team.tip, team.tip_lock, f"hogwild:{team.name}", tokens, req.taken
        )
        team.tip_lock = lock
        index = len(team.published)
        segment = Segment((team.name, index), node.value, 0)
        team.published.append(PublishedStep(index, req.worker, tokens, segment, node))
        if req.worker is not None:
            at_break = isinstance(req.finished_reason, FinishSentence)
            team.leave_off(req.worker, req.carried, at_break=at_break, turn_over=req.ends_turn)
            team.newest[req.worker] = req.rid
        self._forget(team, req)
        self._recorder.event("publish", team.name, rid=req.rid, worker=req.worker, index=index)
        self._emit(
            "published",
            team.name,
            {
                "rid": req.rid,
                "index": index,
                "tokens": tokens.tolist(),
                "carried": req.carried,
                "history_published": history,
                "finish": req.finished_reason.to_json(),
                **self._counts(req),
            },
        )
        if req.worker is not None and req.kind is Kind.STEP:
            self._begin_queued(team, req)
            if req.ends_turn or req.out_of_passes:
                team.lockstep.discard(req.worker)
        self._finish_closing(team)

    def _end_reader(self, req: StepReq) -> None:
        team = self.teams[req.team]
        self._forget(team, req)
        data = {"rid": req.rid, "finish": req.finished_reason.to_json(), **self._counts(req)}
        self._recorder.event("end_reader", team.name, rid=req.rid)
        self._emit("read", team.name, data)
        self._finish_closing(team)

    def _forget(self, team: Team, req: StepReq) -> None:
        del self.writers[req.rid]
        team.remove(req)

    def _counts(self, req: StepReq) -> dict:
        team = self.teams[req.team]
        return {
            "forwards": req.forwards,
            "team_forwards": team.forwards,
            "history_start": req.history_start,
            "fed_tokens": len(req.origin_input_ids),
            "output_tokens": len(req.output_ids_through_stop),
        }

    def _finish_closing(self, team: Team) -> None:
        if team.closing is None or not team.idle or team.name not in self.teams:
            return
        del self.teams[team.name]
        self._pins = {rid: pin for rid, pin in self._pins.items() if pin[0] is not team}
        self.tree.unlock(team.tip_lock)
        self.tree.prune([step.node for step in team.published])
        for part in team.parts.values():
            self.tree.unlock(part.lock)
        self._recorder.event("close", team.name)
        self._emit("closed", team.name, {"reason": team.closing})
