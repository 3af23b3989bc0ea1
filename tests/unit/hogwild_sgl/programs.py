"""Small programs on the fake server, for tests of the frontend."""

from __future__ import annotations

import time

import sglang as sgl

import hogwild_sgl as hogwild
from hogwild_sgl import prompts
from tests.fake_server import Writing

BARE = prompts.formatting().replace(preamble="", header_others="", header_own="")


def endless(writing: Writing) -> str:
    return "42}." if writing.worker is None else "word " * 400


def run(server, body, *, workers=("Alice", "Bob"), formatting=BARE, stream=False, **sampling):
    """Runs ``body(s, team)`` in a program; its value is the state's ``ret_value``."""

    @sgl.function
    def program(s):
        s += "Prompt."
        return body(s, hogwild.fork(s, workers=workers, formatting=formatting))

    return program.run(backend=server.endpoint(), stream=stream, **sampling)


def wait_for(condition) -> None:
    deadline = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)
