"""What the server process and the scheduler say to each other about teams.

They travel on SGLang's own sockets, beside its own messages.
"""

from __future__ import annotations

from typing import Any

import msgspec
from sglang.srt.managers.io_struct import BaseReq, hook_custom_types

from runtime_patch.scheduler.team import Kind


class Purpose(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a request does for a team; travels in its ``custom_params["hogwild"]``.

    worker: None for a prompt, a header, a reader of the layout's reader view, and a
        voice from outside.
    key: the team's, which only the server process knows; without it anybody's request could
        pose as a team's.
    ends_by_rule, after_live, behind, until: of a worker's step, see ``step_request.py``
        and ``book.py``.
    separated: the tokens to feed instead of the request's own where the worker's text does
        not end in a blank line: the same text with a separator in front.
    """

    kind: Kind
    team: str
    key: str
    worker: int | None = None
    ends_by_rule: bool = False
    after_live: bool = False
    behind: str | None = None
    until: int | None = None
    separated: list[int] | None = None

    def __post_init__(self) -> None:
        if self.kind is Kind.STEP and self.worker is None:
            raise ValueError("a step has a worker")


class TeamCommand(BaseReq, kw_only=True):
    """Server to scheduler: ``open``, ``close``, ``abort``, ``lockstep`` or ``inspect`` a team.

    dp_rank: the replica that holds the team; the others ignore the command.
    call: answered in a TeamReply with the same number.
    """

    call: int
    command: str
    team: str
    dp_rank: int
    arguments: dict[str, Any]


class TeamReply(BaseReq, kw_only=True):
    """Scheduler to server: the answer to one TeamCommand."""

    call: int
    error: str | None
    result: dict[str, Any]


class TeamEvent(BaseReq, kw_only=True):
    """Scheduler to server: something happened to a team, in the order it happened.

    kind: start, published, dropped or closed.
    """

    kind: str
    team: str
    data: dict[str, Any]


def register() -> None:
    """Teach this process's decoder the three types."""
    hook_custom_types(TeamCommand, TeamReply, TeamEvent)
