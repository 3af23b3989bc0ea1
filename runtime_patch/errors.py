"""What the patch refuses, and why."""

from __future__ import annotations

from http import HTTPStatus

# Types of refusals that a client acts on: a step cannot be begun because what it was to
# follow is gone, or the forwards that it was given have been used.
NOT_BEGUN = "not_begun"
OUT_OF_FORWARDS = "out_of_forwards"

CLIENT_CLOSED = 499  # nginx's number; HTTP has none


class TeamError(Exception):
    """A command or request for a team that is refused, in either process.

    status: the HTTP status that fits it. type: the word for it in the reply, by default
    the status's name.
    """

    def __init__(self, message: str, status: int = HTTPStatus.BAD_REQUEST, type: str | None = None):
        super().__init__(message)
        self.status = int(status)
        self.type = type or _name_of(self.status)

    def body(self) -> dict:
        return {"error": {"message": str(self), "type": self.type, "status": self.status}}


def _name_of(status: int) -> str:
    return "client_closed" if status == CLIENT_CLOSED else HTTPStatus(status).name.lower()


def not_begun(why: str) -> TeamError:
    return TeamError(why, HTTPStatus.CONFLICT, NOT_BEGUN)


class KernelUnavailable(RuntimeError):
    """The kernel cannot run here; the message says why and what to do about it."""
