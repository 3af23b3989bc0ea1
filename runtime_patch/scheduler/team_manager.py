"""The teams of one scheduler: its part for the server process, for SGLang's requests and for
its forwards."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from runtime_patch.errors import TeamError
from runtime_patch.scheduler.commands import TeamCommands
from runtime_patch.scheduler.forward_log import ForwardLog
from runtime_patch.scheduler.forwards import TeamForwards
from runtime_patch.scheduler.radix_cache import HogwildRadixCache
from runtime_patch.scheduler.requests import TeamRequests
from runtime_patch.scheduler.step_req import StepReq
from runtime_patch.scheduler.team_store import Emit, TeamStore


class RequestControl(Protocol):
    """What is asked of SGLang's scheduler about requests."""

    def abort(self, rid: str) -> None:
        """Abort a request, wherever it is."""

    def enqueue(self, req: StepReq) -> None:
        """Put a request into the waiting queue."""

    def refuse(self, req: StepReq, error: TeamError) -> None:
        """End a request that is in no queue with an error."""


@dataclass
class Starvation:
    """How long a team's queued request has found no room, see patches/idle.py."""

    # Idle rounds without a forward in between.
    rounds: int = 0
    # The teams' requests have been put in front of the ordinary ones.
    teams_went_first: bool = False

    def reset(self) -> None:
        self.rounds, self.teams_went_first = 0, False


class TeamManager:
    """One per scheduler; SGLang calls it through ``runtime_patch/patches``.

    commands: from the server process. requests: from admission to their end. forwards:
    what each row sees, and what a forward has ended.
    context_length: longest view, in tokens. common_clock: see ``TeamForwards``.
    """

    def __init__(
        self,
        radix_cache: HogwildRadixCache,
        emit: Emit,
        control: RequestControl,
        context_length: int,
        log: ForwardLog,
        common_clock: bool = True,
    ):
        self.store = TeamStore(radix_cache, emit, log)
        self.commands = TeamCommands(self.store, control.abort, control.enqueue)
        self.requests = TeamRequests(self.store, control.enqueue, control.refuse, context_length)
        self.forwards = TeamForwards(self.store, self.requests, context_length, common_clock)
        self.starvation = Starvation()
        radix_cache.keep_part = self.requests.keep_part
