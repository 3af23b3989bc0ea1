"""What can go wrong between a program and the server, as exceptions a program can catch."""

from __future__ import annotations

from typing import Any

PATCH_REMEDY = (
    "Start the server with `hogwild serve MODEL`, or install hogwild-sgl where the server "
    "runs and add `--attention-backend hogwild --radix-cache-backend hogwild`; "
    "`hogwild check --url URL` says what a server has."
)


class UserError(Exception):
    """What went wrong, and what to do about it.

    The command line prints both and exits with status 1; a Python caller sees them in
    ``str(error)``.
    """

    def __init__(self, message: str, remedy: str = "") -> None:
        super().__init__(f"{message}\n{remedy}" if remedy else message)
        self.message = message
        self.remedy = remedy


class HogwildError(UserError):
    """The server refused or failed a request.

    status: HTTP status code, None where no reply came. type: the server's word for it.
    """

    def __init__(
        self, message: str, remedy: str = "", *, status: int | None = None, type: str = ""
    ) -> None:
        super().__init__(message, remedy)
        self.status = status
        self.type = type


class BadRequest(HogwildError):
    """400 or 422: the request makes no sense; the message says why."""


class UnknownTeam(HogwildError):
    """404: the server has no such team."""


class StepConflict(HogwildError):
    """409: the worker already has a live step."""


class TeamClosed(HogwildError):
    """410: the team has been closed."""


class OutOfMemory(HogwildError):
    """503: the KV pool cannot hold what was asked for."""


class StepDropped(HogwildError):
    """The step was aborted or dropped; it left nothing behind."""


class StepNotBegun(StepDropped):
    """A step could not be begun: what it was to follow is gone, or ended the worker's turn,
    or the forwards it was given have been used (``type`` is then ``out_of_forwards``)."""


class ServerGone(HogwildError):
    """No reply: nothing listens, the connection broke, or the server went silent."""

    @classmethod
    def unreachable(cls, url: str, error: Exception) -> ServerGone:
        """Nothing could be connected to at ``url``."""
        return cls(
            f"No server answers at {url} ({error}).",
            "Start one with `hogwild serve MODEL`, or give its --url.",
        )


class PatchNotActive(HogwildError):
    """The server is SGLang without this project's patch."""


class ProtocolError(HogwildError):
    """A reply that is not what docs/http.md says; client and server do not fit."""


_BY_STATUS: dict[int, type[HogwildError]] = {
    400: BadRequest,
    404: UnknownTeam,
    409: StepConflict,
    410: TeamClosed,
    422: BadRequest,
    503: OutOfMemory,
}
OUT_OF_FORWARDS = "out_of_forwards"
NOT_BEGUN_TYPES = frozenset({"not_begun", OUT_OF_FORWARDS})
DROPPED_TYPES = frozenset({"aborted", "dropped"})


def error_from(status: int, body: Any) -> HogwildError:
    """The exception for an error reply: ``{"error": {"message", "type"}}`` and its status.

    SGLang's own routes leave the wrapper away. A 404 without it comes from a server that
    does not know the route at all.
    """
    error = body.get("error") if isinstance(body, dict) else None
    if not isinstance(error, dict):
        if status == 404:
            return PatchNotActive(
                "The server answers, but the hogwild patch is not active in it.",
                PATCH_REMEDY,
                status=404,
            )
        if not isinstance(body, dict) or "message" not in body:
            return ProtocolError(f"HTTP {status}: {body!r}", status=status)
        error = body
    message, kind = str(error.get("message", body)), str(error.get("type", ""))
    if kind in NOT_BEGUN_TYPES:
        return StepNotBegun(message, status=status, type=kind)
    if kind in DROPPED_TYPES:
        return StepDropped(message, status=status, type=kind)
    return _BY_STATUS.get(status, HogwildError)(message, status=status, type=kind)
