"""Teams in the scheduler's forwards: what each row sees, and what a forward has ended."""

from __future__ import annotations

import time
from array import array
from collections.abc import Iterable
from typing import Any

import torch

from runtime_patch.attention.views import Segment, View
from runtime_patch.scheduler import lockstep
from runtime_patch.scheduler.requests import TeamRequests
from runtime_patch.scheduler.step_req import FinishSentence, StepReq
from runtime_patch.scheduler.team import PublishedStep, Team
from runtime_patch.scheduler.team_store import TeamStore
from runtime_patch.scheduler.team_views import TeamViews
from runtime_patch.team_request import Kind


class TeamForwards:
    """Views before a forward, counts and publishing after it.

    context_length: longest view, in tokens.
    common_clock: False where several ranks must decide alike, whose clocks differ.
    """

    def __init__(
        self,
        store: TeamStore,
        requests: TeamRequests,
        context_length: int,
        common_clock: bool = True,
    ):
        self._store = store
        self._requests = requests
        self._context_length = context_length
        self._common_clock = common_clock

    def views(
        self,
        rids: list[str],
        rows: list[int],
        written: dict[str, torch.Tensor],
        token_of_row: torch.Tensor,
    ) -> list[View]:
        """See ``attention.views.ViewSource``."""
        written = self._requests.written(written)
        views = []
        for rid, count in zip(rids, rows, strict=True):
            writer, slots = self._store.writers.get(rid), written[rid]
            if writer is None:
                views.append(View.of_request(rid, count, slots))
                continue
            team = self._store.teams[writer.team]
            view = View(count, len(slots) - count, TeamViews(team, written).view(writer))
            writer.view_room = self._context_length - len(view) - team.workers
            views.append(view)
        self._store.log.forward(self._store.writers, rids, rows, views, token_of_row)
        return views

    def held(self, reqs: Iterable[Any], chunking: bool) -> list[int]:
        """Places of the running requests that sit out the next forward, see lockstep.py."""
        teams = [team for team in self._store.teams.values() if team.lockstep]
        for team in teams:
            if lockstep.give_up(team, time.monotonic() if self._common_clock else 0.0):
                self._requests.queue_ready(team)
        waiting = {team.name for team in teams if lockstep.waits(team, chunking)}
        return lockstep.held_rows(reqs, waiting)

    def count_forward(self, reqs: Iterable[Any]) -> None:
        """Count a forward for the requests and teams that had rows in it."""
        reqs = self._writers_of(reqs)
        worked = set()
        for req in reqs:
            team = self._store.teams[req.team]
            if req.history_start is None:
                req.history_start = team.history_tokens
                self._store.emit("start", team.name, self._store.counts(req))
            req.forwards += 1
            # In lockstep an aborting step may run while the others wait, which is no pass.
            if req.kind is Kind.STEP and not (team.lockstep and req.aborting):
                worked.add(team.name)
        for name in worked:
            self._store.teams[name].forwards += 1
        for req in reqs:
            limit = req.purpose.forwards_limit
            if limit is not None:
                req.out_of_forwards = self._store.teams[req.team].forwards >= limit

    def finish_forward(self, reqs: Iterable[Any]) -> None:
        """After a forward: publish or drop the steps that ended in it.

        Steps that end in the same forward are published in ascending worker order."""
        ended = [req for req in self._writers_of(reqs) if req.finished()]
        for req in sorted(ended, key=lambda r: -1 if r.worker is None else r.worker):
            if req.kind.publishes and req.stashed_slots is not None:
                self._publish(req, req.stashed_slots)
            elif req.kind is Kind.READER and not req.aborting:
                self._end_reader(req)
            else:
                self._requests.drop(req, "aborted")
        # In the order of the requests: a set's would differ between ranks.
        for name in dict.fromkeys(req.team for req in ended):
            if name in self._store.teams:
                self._requests.queue_ready(self._store.teams[name])

    def _writers_of(self, reqs: Iterable[Any]) -> list[StepReq]:
        return [req for req in reqs if isinstance(req, StepReq) and req.rid in self._store.writers]

    def _publish(self, req: StepReq, slots: torch.Tensor) -> None:
        """The step's slots become a node of the tree:

        prompt ── step 0 ── step 1 ── (tip) ── this step
        lock of the prompt  | the team's lock, from below the prompt to the tip
        """
        team = self._store.teams[req.team]
        tokens = array("q", [*req.origin_input_ids, *req.output_ids])[: len(slots)]
        history, index = team.history_tokens, len(team.published)
        node, team.tip_lock = self._store.radix_cache.graft(
            team.tip, team.tip_lock, f"hogwild:{team.name}", tokens, slots
        )
        segment = Segment((team.name, index), node.value, 0)
        team.published.append(PublishedStep(index, req.worker, tokens, segment, node))
        if req.worker is not None:
            self._finish_worker_step(team, req)
        counts = self._store.counts(req)
        self._store.remove(req)
        self._store.log.event("publish", team.name, rid=req.rid, worker=req.worker, index=index)
        self._store.emit(
            "published",
            team.name,
            {
                "index": index,
                "tokens": tokens.tolist(),
                "history_published": history,
                "finish": req.finished_reason.to_json(),
                **counts,
            },
        )
        if req.kind is Kind.STEP:
            self._requests.begin_ahead(team, req)
            if req.ends_turn or req.out_of_forwards:
                team.lockstep.discard(req.worker)
        self._store.finish_closing(team)

    def _finish_worker_step(self, team: Team, req: StepReq) -> None:
        team.finish_worker_step(
            req.worker,
            req.carried,
            separated=isinstance(req.finished_reason, FinishSentence),
            done=req.ends_turn,
        )
        team.newest[req.worker] = req.rid

    def _end_reader(self, req: StepReq) -> None:
        counts = self._store.counts(req)
        team = self._store.remove(req)
        self._store.log.event("end_reader", team.name, rid=req.rid)
        self._store.emit("read", team.name, {"finish": req.finished_reason.to_json(), **counts})
        self._store.finish_closing(team)
