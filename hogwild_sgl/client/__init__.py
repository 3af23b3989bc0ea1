"""Clients of the HTTP interface in docs/http.md."""
