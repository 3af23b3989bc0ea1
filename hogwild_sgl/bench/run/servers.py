"""Which server the next problem goes to; servers may come and go during a run."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Sequence

from hogwild_sgl.errors import UserError

LONGEST_PAUSE = 30.0
# Not an option: a report quotes the command.
API_KEY = "HOGWILD_API_KEY"


def api_key() -> str | None:
    """The key for servers that ask for one."""
    return os.environ.get(API_KEY)


class ServersGone(UserError):
    """No server has answered for longer than the caller's patience."""


class Servers:
    """Hands out places on servers: ``places`` at a time on each, the emptiest first.

    A server that failed is left alone for a while (1 s, 2 s, 4 s, ... 30 s), then tried
    with one problem, until it works again. ``patience``: seconds that all servers may be
    down before `acquire` raises `ServersGone`. ``tell`` is called, from any thread, with a
    line for people when a server stops answering and when it answers again.
    """

    def __init__(
        self,
        urls: Sequence[str],
        places: int,
        patience: float = 300.0,
        clock: Callable[[], float] = time.monotonic,
        tell: Callable[[str], None] = lambda line: None,
    ) -> None:
        if not urls or places < 1:
            raise ValueError("at least one server with one place is needed")
        self.urls = tuple(dict.fromkeys(url.rstrip("/") for url in urls))
        self.capacity = len(self.urls) * places
        self._places, self._patience, self._clock = places, patience, clock
        self._tell = tell
        self._busy = dict.fromkeys(self.urls, 0)
        self._failures = dict.fromkeys(self.urls, 0)
        self._until = dict.fromkeys(self.urls, 0.0)
        self._down_since: float | None = None
        self._last_error = ""
        self._change = threading.Condition()

    def acquire(self, stop: threading.Event) -> str | None:
        """A server's URL, once one has a free place; None if ``stop`` is set meanwhile."""
        with self._change:
            while not stop.is_set():
                now = self._clock()
                if self._down_since is not None and now - self._down_since > self._patience:
                    raise ServersGone(
                        f"No server has answered for {self._patience:g} s; the last error was: "
                        f"{self._last_error}",
                        "Start a server and run the same command again: what is done stays done.",
                    )
                url = self._best(now)
                if url is not None:
                    self._busy[url] += 1
                    return url
                self._change.wait(timeout=0.2)
        return None

    def _best(self, now: float) -> str | None:
        free = [
            url
            for url in self.urls
            # One that has just failed is tried with a single problem.
            if self._busy[url] < (1 if self._failures[url] else self._places)
            and now >= self._until[url]
        ]
        return min(free, key=self._busy.__getitem__, default=None)

    def release(self, url: str, error: str | None = None) -> None:
        """Gives a place back; ``error`` if the server did not answer."""
        with self._change:
            self._busy[url] -= 1
            if bool(error) != bool(self._failures[url]):
                self._tell(
                    f"{url} does not answer. What it was doing is done again; it is tried from "
                    "time to time."
                    if error
                    else f"{url} answers again."
                )
            if error is None:
                self._failures[url], self._until[url], self._down_since = 0, 0.0, None
            else:
                self._failures[url] += 1
                pause = min(LONGEST_PAUSE, 2.0 ** (self._failures[url] - 1))
                self._until[url] = self._clock() + pause
                self._last_error = error
                if self._down_since is None and all(self._failures.values()):
                    self._down_since = self._clock()
            self._change.notify_all()
