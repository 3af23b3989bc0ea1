"""A server over a real socket that follows docs/http.md, with a scripted model."""

from tests.fake_server.model import Writing
from tests.fake_server.server import FakeServer

__all__ = ["FakeServer", "Writing"]
