"""A server over a real socket that follows docs/http.md, with a scripted model."""

from tests.hogwild_sgl.fake.model import Writing
from tests.hogwild_sgl.fake.server import FakeServer

__all__ = ["FakeServer", "Writing"]
