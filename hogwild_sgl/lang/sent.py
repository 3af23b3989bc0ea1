"""A step that is asked for before its worker's thread comes to it."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator

from hogwild_sgl.client.client import StepMessage
from hogwild_sgl.client.records import StepReply
from hogwild_sgl.driver.commands import Write


class SentStep:
    """Reads a step's messages in a thread of its own and keeps them.

    write: the command that asked for it. messages: what ``stream_step`` gives. Iterating
    yields them as they come, and raises what they raise; iterate once.
    """

    def __init__(self, write: Write, messages: Iterator[StepMessage]) -> None:
        self.write = write
        self._messages = messages
        self._come: queue.SimpleQueue[StepMessage | Exception] = queue.SimpleQueue()
        threading.Thread(target=self._read, daemon=True).start()

    def __iter__(self) -> Iterator[StepMessage]:
        while True:
            message = self._come.get()
            if isinstance(message, Exception):
                raise message
            yield message
            if isinstance(message, StepReply):
                return

    def _read(self) -> None:
        try:
            for message in self._messages:
                self._come.put(message)
        except Exception as error:  # raised again in the worker's own thread
            self._come.put(error)
