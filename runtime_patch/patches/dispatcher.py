"""Patch of the scheduler's dispatcher: a team manager, and commands for it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from runtime_patch.errors import TeamError
from runtime_patch.messages import TeamCommand, TeamEvent, TeamReply
from runtime_patch.patches.access import SCHEDULER, TEAMS, abort, teams_of
from runtime_patch.patches.base import Patch
from runtime_patch.scheduler.forward_log import ForwardLog
from runtime_patch.scheduler.radix_cache import HogwildRadixCache
from runtime_patch.scheduler.step_req import StepReq
from runtime_patch.scheduler.team_manager import TeamManager


class DispatcherPatch(Patch):
    """Gives the scheduler a team manager and lets it answer team commands.

    Why here: the dispatcher is built once, after the tree and the model runner."""

    target = f"{SCHEDULER}.init_request_dispatcher"
    parameters = ("self",)
    relies_on = ("self._request_dispatcher = TypeBasedDispatcher",)

    def around(self, original: Callable, scheduler: Any) -> None:
        original(scheduler)
        if not isinstance(scheduler.tree_cache, HogwildRadixCache):
            return
        teams = _make_teams(scheduler)
        setattr(scheduler, TEAMS, teams)
        scheduler.tp_worker.model_runner.attn_backend.view_source = teams.forwards
        dispatcher = scheduler._request_dispatcher
        dispatcher._mapping[TeamCommand] = lambda command: _obey(scheduler, command)


class _SchedulerControl:
    """The ``RequestControl`` of a scheduler."""

    def __init__(self, scheduler: Any):
        self._scheduler = scheduler

    def abort(self, rid: str) -> None:
        from sglang.srt.managers.io_struct import AbortReq

        self._scheduler.abort_request(AbortReq(rid=rid))

    def enqueue(self, req: StepReq) -> None:
        self._scheduler._add_request_to_queue(req)

    def refuse(self, req: StepReq, error: TeamError) -> None:
        abort(self._scheduler, req, str(error), error.status, error.type)


def _make_teams(scheduler: Any) -> TeamManager:
    from sglang.srt.runtime_context import get_parallel

    def emit(kind: str, team: str, data: dict) -> None:
        event = TeamEvent(kind=kind, team=team, data=data)
        scheduler.ipc_channels.send_to_tokenizer.send_output(event)

    return TeamManager(
        radix_cache=scheduler.tree_cache,
        emit=emit,
        control=_SchedulerControl(scheduler),
        context_length=scheduler.model_config.context_len,
        log=ForwardLog.from_environment(),
        common_clock=get_parallel().tp_size == 1,
    )


def _obey(scheduler: Any, command: TeamCommand) -> TeamReply | None:
    from sglang.srt.runtime_context import get_parallel

    if command.dp_rank != (get_parallel().dp_rank or 0):
        return None
    commands = teams_of(scheduler).commands
    actions = {
        "open": commands.open,
        "close": commands.close,
        "abort": commands.abort,
        "lockstep": commands.lockstep,
        "inspect": commands.inspect,
        "about": lambda team: {"kernel": scheduler.tp_worker.model_runner.attn_backend.kernel.name},
    }
    try:
        result = actions[command.command](command.team, **command.arguments)
    except TeamError as error:
        return TeamReply(call=command.call, error=str(error), result={"status": error.status})
    return TeamReply(call=command.call, error=None, result=result)
