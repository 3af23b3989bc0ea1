"""What the tests of one shared server have in common."""

from __future__ import annotations

import pytest

from tests.servers.api import Api


@pytest.fixture(scope="module")
def api(server) -> Api:
    return Api(server.url)


@pytest.fixture
def nothing_is_left(api):
    """For ``usefixtures``: after each test the server holds nothing of any team."""
    yield
    api.at_rest()
