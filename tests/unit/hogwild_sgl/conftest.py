"""A fake server for a test, which must leave no team open."""

from __future__ import annotations

import pytest

from tests.fake_server import FakeServer


@pytest.fixture
def server():
    with FakeServer() as running:
        yield running
        running.settle()
