"""What the server process and the scheduler say to each other about teams.

They travel on SGLang's own sockets, beside its own messages.
"""

from __future__ import annotations

from typing import Any

from sglang.srt.managers.io_struct import BaseReq, hook_custom_types


class TeamCommand(BaseReq, kw_only=True):
    """Server to scheduler: ``open``, ``close``, ``abort``, ``lockstep`` or ``inspect`` a team,
    or say something ``about`` the engine (team is then empty).

    dp_rank: the replica that holds the team; the others ignore the command.
    call: answered in a TeamReply with the same number.
    """

    call: int
    command: str
    team: str
    dp_rank: int
    arguments: dict[str, Any]


class TeamReply(BaseReq, kw_only=True):
    """Scheduler to server: the answer to one TeamCommand.

    error: None, or why the command was refused; result then holds its ``status``.
    """

    call: int
    error: str | None
    result: dict[str, Any]


class TeamEvent(BaseReq, kw_only=True):
    """Scheduler to server: something happened to a team, in the order it happened.

    kind: ``start`` (a request has its first forward), ``published``, ``read`` (a reader has
    ended), ``dropped`` or ``closed``.
    """

    kind: str
    team: str
    data: dict[str, Any]


def register() -> None:
    """Teach this process's decoder the three types."""
    hook_custom_types(TeamCommand, TeamReply, TeamEvent)
