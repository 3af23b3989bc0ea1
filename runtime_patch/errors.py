"""Errors of the team service, each with the HTTP status that fits it."""

from __future__ import annotations

from http import HTTPStatus


class ServiceError(Exception):
    """A request about a team that cannot be served."""

    def __init__(self, message: str, status: int = HTTPStatus.BAD_REQUEST, kind: str | None = None):
        super().__init__(message)
        self.status = int(status)
        self.kind = kind or (HTTPStatus(status).name.lower() if status != 499 else "client_closed")

    def body(self) -> dict:
        return {"error": {"message": str(self), "type": self.kind, "status": self.status}}


class KernelUnavailable(RuntimeError):
    """The kernel cannot run here; the message says why and what to do about it."""
