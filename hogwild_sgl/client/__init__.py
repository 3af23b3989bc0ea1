"""Clients of the HTTP interface in docs/http.md."""

from hogwild_sgl.client.client import Client, OpenedTeam, TeamHandle

__all__ = ["Client", "OpenedTeam", "TeamHandle"]
