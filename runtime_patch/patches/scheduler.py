"""Patches of SGLang's scheduler."""

from __future__ import annotations

import logging
from collections.abc import Callable
from http import HTTPStatus
from typing import Any

import msgspec
from sglang.srt.managers.schedule_batch import FINISH_ABORT

from runtime_patch.messages import Purpose, TeamCommand, TeamEvent, TeamReply
from runtime_patch.patches.base import Patch
from runtime_patch.patches.batches import rejoin
from runtime_patch.scheduler.admission import TeamError, check_pool
from runtime_patch.scheduler.forward_log import Recorder
from runtime_patch.scheduler.radix_cache import HogwildRadixCache
from runtime_patch.scheduler.step_req import StepReq, refuse
from runtime_patch.scheduler.team_manager import TeamBook

logger = logging.getLogger(__name__)

SCHEDULER = "sglang.srt.managers.scheduler.Scheduler"

# Idle rounds, without a forward in between, after which a team's queued request counts as
# starved: nothing runs that could free KV, and SGLang has tried to evict what it may.
STARVED_ROUNDS = 20


def book_of(scheduler: Any) -> TeamBook | None:
    """The scheduler's team book; None when it does not run the hogwild tree."""
    return getattr(scheduler.tree_cache, "book", None)


def abort(
    scheduler: Any, req: Any, message: str, status: HTTPStatus, kind: str | None = None
) -> None:
    """End a request that is in no queue and in no batch, and tell its client."""
    from sglang.srt.managers.scheduler import _make_abort_req

    reason = FINISH_ABORT(message, status, kind or status.name)
    req.finished_reason = reason
    scheduler._release_aborted_request(req)
    scheduler.send_abort_output(_make_abort_req(req, finished_reason=reason.to_json()), req)


class DispatcherPatch(Patch):
    """Gives the scheduler a team book and lets it answer team commands.

    Why here: the dispatcher is built once, after the tree and the model runner."""

    target = f"{SCHEDULER}.init_request_dispatcher"
    parameters = ("self",)
    relies_on = ("self._request_dispatcher = TypeBasedDispatcher",)

    def around(self, original: Callable, scheduler: Any) -> None:
        original(scheduler)
        if not isinstance(scheduler.tree_cache, HogwildRadixCache):
            return
        scheduler.tree_cache.book = book = _make_book(scheduler)
        scheduler.tp_worker.model_runner.attn_backend.book = book
        dispatcher = scheduler._request_dispatcher
        dispatcher._mapping[TeamCommand] = lambda command: _obey(scheduler, command)


class _SchedulerRequests:
    """The book's ``Requests`` on a scheduler."""

    def __init__(self, scheduler: Any):
        self._scheduler = scheduler

    def abort(self, rid: str) -> None:
        from sglang.srt.managers.io_struct import AbortReq

        self._scheduler.abort_request(AbortReq(rid=rid))

    def enqueue(self, req: StepReq) -> None:
        self._scheduler._add_request_to_queue(req)

    def refuse(self, req: StepReq, error: TeamError) -> None:
        abort(self._scheduler, req, str(error), error.status, error.kind)


def _make_book(scheduler: Any) -> TeamBook:
    from sglang.srt.runtime_context import get_parallel

    def emit(kind: str, team: str, data: dict) -> None:
        event = TeamEvent(kind=kind, team=team, data=data)
        scheduler.ipc_channels.send_to_tokenizer.send_output(event)

    return TeamBook(
        tree=scheduler.tree_cache,
        emit=emit,
        requests=_SchedulerRequests(scheduler),
        context_length=scheduler.model_config.context_len,
        recorder=Recorder.from_environment(),
        many_ranks=get_parallel().tp_size > 1,
    )


def _obey(scheduler: Any, command: TeamCommand) -> TeamReply | None:
    from sglang.srt.runtime_context import get_parallel

    if command.dp_rank != (get_parallel().dp_rank or 0):
        return None
    book = book_of(scheduler)
    actions = {
        "open": book.open,
        "close": book.close,
        "abort": book.abort,
        "lockstep": book.lockstep,
        "inspect": book.inspect,
        "about": lambda team: {"kernel": scheduler.tp_worker.model_runner.attn_backend.kernel.name},
    }
    try:
        result = actions[command.command](command.team, **command.arguments)
    except TeamError as error:
        return TeamReply(call=command.call, error=str(error), result={"status": int(error.status)})
    return TeamReply(call=command.call, error=None, result=result)


class RequestClassPatch(Patch):
    """Makes a team's step, reader or say a StepReq, and expects its prompt and headers.

    Why here: SGLang calls this its extension point for request-local state. What the
    request is for travels in ``sampling_params.custom_params["hogwild"]``."""

    target = f"{SCHEDULER}._create_generation_req"
    parameters = ("self", "recv_req", "args", "kwargs")
    relies_on = ("return Req(*args, **kwargs)",)

    def around(self, original: Callable, scheduler: Any, recv_req: Any, *args, **kwargs) -> Any:
        wanted = (recv_req.sampling_params.custom_params or {}).get("hogwild")
        if wanted is None:
            return original(scheduler, recv_req, *args, **kwargs)
        book = book_of(scheduler)
        if book is None:
            return refuse(
                original(scheduler, recv_req, *args, **kwargs),
                "this server does not run teams: start it with --attention-backend hogwild "
                "--radix-cache-backend hogwild (or `hogwild serve`)",
                HTTPStatus.NOT_IMPLEMENTED,
            )
        req = original(scheduler, recv_req, *args, **kwargs)
        try:
            purpose = msgspec.convert(wanted, Purpose)
        except msgspec.ValidationError as error:
            message = f"custom_params.hogwild belongs to the /hogwild routes: {error}"
            return refuse(req, message, HTTPStatus.BAD_REQUEST)
        try:
            book.require_key(purpose.team, purpose.key)
            pool = book.tree.token_to_kv_pool_allocator.size
            check_pool(len(req.origin_input_ids), pool)
            if purpose.kind.is_part:
                book.expect_part(req.rid, purpose.team, purpose.kind)
                return req
            step = StepReq(
                *args,
                team=purpose.team,
                kind=purpose.kind,
                worker=purpose.worker,
                ends_by_rule=purpose.ends_by_rule,
                until=purpose.until,
                separated=purpose.separated,
                **kwargs,
            )
            book.admit(step, after_live=purpose.after_live, behind=purpose.behind)
            return step
        except TeamError as error:
            book.tell_refused(purpose.team, req.rid)
            return refuse(req, str(error), error.status, error.kind)


class SettlePatch(Patch):
    """Counts each forward for the teams in it, then publishes the steps that ended.

    Why here: all results of a forward have been processed when this returns, so steps
    that ended together can be published in worker order."""

    target = f"{SCHEDULER}.process_batch_result"
    parameters = ("self", "batch", "result")
    relies_on = ("process_batch_result_decode", "process_batch_result_prefill")

    def around(self, original: Callable, scheduler: Any, batch: Any, result: Any) -> None:
        book = book_of(scheduler)
        if book is None:
            return original(scheduler, batch, result)
        reqs = list(batch.reqs)
        book.starved_rounds, book.teams_went_first = 0, False
        book.count_forward(reqs)
        original(scheduler, batch, result)
        book.settle(reqs)
        rejoin(scheduler)


class QueuePatch(Patch):
    """Keeps a parked step out of the queue, puts a step in lockstep to its front, and ends a
    retracted one with an error.

    Why: a parked step begins when its worker's live step has been published, not before. A
    step in lockstep goes on where its worker has just stopped; the others wait for it.
    A retracted one would be prefilled anew, with a view that has moved on, so its KV would
    not be what its writer saw; the pool was too small for the team."""

    target = f"{SCHEDULER}._add_request_to_queue"
    parameters = ("self", "req", "is_retracted")
    relies_on = ("self.waiting_queue.append(req)",)

    def around(
        self, original: Callable, scheduler: Any, req: Any, is_retracted: bool = False
    ) -> None:
        if isinstance(req, StepReq) and req.parked:
            return None
        if not isinstance(req, StepReq) or req.retraction_count == 0:
            original(scheduler, req, is_retracted=is_retracted)
            book = book_of(scheduler)
            if isinstance(req, StepReq) and book is not None and book.in_lockstep(req):
                scheduler.waiting_queue.sort(key=lambda one: not book.in_lockstep(one))
            return None
        if scheduler._engine_paused:
            message = "the step was taken back by /pause_generation: pause in_place to keep steps"
            abort(scheduler, req, message, HTTPStatus.CONFLICT)
            return None
        message = pool_message(scheduler, req, "ran out while the step was being written")
        abort(scheduler, req, message, HTTPStatus.SERVICE_UNAVAILABLE)


class ParkedAbortPatch(Patch):
    """Lets ``/abort_request`` reach parked steps too.

    Why: SGLang looks for the request in its own queues, where a parked step is not."""

    target = f"{SCHEDULER}.abort_request"
    parameters = ("self", "recv_req")
    relies_on = ("req.rid.startswith(recv_req.rid)",)

    def around(self, original: Callable, scheduler: Any, recv_req: Any) -> None:
        original(scheduler, recv_req)
        book = book_of(scheduler)
        if book is None:
            return
        for req in book.parked():
            if recv_req.abort_all or req.rid.startswith(recv_req.rid):
                abort(scheduler, req, "Aborted", HTTPStatus.CONFLICT)


class IdlePatch(Patch):
    """Ends a team's queued request that can never be admitted.

    Why: SGLang keeps a request queued until KV is freed. When nothing runs, what is held
    is held by open teams, and the request would wait for ever."""

    target = f"{SCHEDULER}.on_idle"
    parameters = ("self",)
    relies_on = ("self.is_fully_idle()",)

    def around(self, original: Callable, scheduler: Any) -> None:
        original(scheduler)
        book = book_of(scheduler)
        if book is None:
            return
        queue = scheduler.waiting_queue
        if not scheduler.running_batch.is_empty():
            return  # a team waits for its worker's next step, and will go on
        starving = [req for req in queue if book.belongs(req)]
        book.starved_rounds = book.starved_rounds + 1 if starving else 0
        if book.starved_rounds < STARVED_ROUNDS:
            return
        book.starved_rounds = 0
        if starving[0] is not queue[0] and not book.teams_went_first:
            # An ordinary request in front has to wait until a team closes; what the teams
            # ask for may be less.
            book.teams_went_first = True
            queue.sort(key=lambda req: not book.belongs(req))
            return
        # One only: with it out of the way the next may find room.
        queue.remove(starving[0])
        message = pool_message(scheduler, starving[0], "has no room to start it")
        abort(scheduler, starving[0], message, HTTPStatus.SERVICE_UNAVAILABLE)


def pool_message(scheduler: Any, req: Any, what: str) -> str:
    tree, allocator = scheduler.tree_cache, scheduler.token_to_kv_pool_allocator
    return (
        f"the KV pool of {scheduler.max_total_num_tokens} tokens {what}: "
        f"{allocator.available_size()} are free, {tree.evictable_size()} can be evicted, "
        f"{tree.protected_size()} are held by open teams, and the request has "
        f"{len(req.origin_input_ids)} tokens and may write "
        f"{req.sampling_params.max_new_tokens}. Close a team, ask for fewer tokens, or start "
        "the server with a larger --max-total-tokens."
    )


class FlushPatch(Patch):
    """Refuses ``/flush_cache`` while teams are open.

    Why: a flush frees the whole pool, and an open team holds KV that it is going to
    read. Like SGLang's refusal while requests run. Weight updates close the teams first
    (patches/weights.py)."""

    target = f"{SCHEDULER}.flush_cache"
    parameters = ("self", "empty_cache")
    relies_on = ("self.tree_cache.reset()",)

    def around(self, original: Callable, scheduler: Any, empty_cache: bool = True) -> bool:
        book = book_of(scheduler)
        if book is not None and book.teams:
            logger.warning(
                "Cache not flushed because %d teams are open: %s. Close them first.",
                len(book.teams),
                ", ".join(book.teams),
            )
            return False
        return original(scheduler, empty_cache=empty_cache)
