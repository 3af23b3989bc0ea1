"""One open team as its program holds it: requests, where each worker stands, events.

Each worker's requests come from its own thread, one at a time; readers from any thread.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from hogwild_sgl.client.client import OpenedTeam, StepMessage
from hogwild_sgl.client.records import StepReply, StepStarted, StepText
from hogwild_sgl.driver.commands import WorkerStart, Write
from hogwild_sgl.driver.driver import step_seed
from hogwild_sgl.errors import (
    OUT_OF_FORWARDS,
    HogwildError,
    StepDropped,
    StepNotBegun,
    TeamClosed,
)
from hogwild_sgl.lang.events import (
    Dropped,
    Event,
    Failed,
    Grown,
    NotBegun,
    Published,
    Read,
    Said,
    Started,
)
from hogwild_sgl.lang.sent import SentStep
from hogwild_sgl.prompts.formatting import Formatting

# Added to the logit of a token that a formatting forbids; more than any logit spans.
FORBIDDEN = -1e4
# Seconds for the server to end the event stream of a team that it has closed.
HOLD_ENDS = 5.0


@dataclass
class Link:
    """Where a worker stands.

    sent: length of the state's text that is published. steps: its published steps.
    attempts: tries at the next one. carries: it has sampled a token that comes first in
    its next step; separated: that token ends in a blank line.
    under_way: steps that the driver has asked for and that the worker's thread has not come
    to yet.
    """

    worker: int
    name: str
    sent: int = 0
    steps: int = 0
    attempts: int = 0
    carries: bool = False
    separated: bool = False
    live: bool = False
    dropping: bool = False
    under_way: deque[SentStep] = field(default_factory=deque)


class TeamCore:
    """handle: the open team. seed: gives every step its own sampling seed."""

    def __init__(self, handle: OpenedTeam, formatting: Formatting, seed: int) -> None:
        self.handle = handle
        self.formatting = formatting
        self.seed = seed
        self.names = handle.info.workers
        self.links = [Link(i, name) for i, name in enumerate(self.names)]
        self.closed = False
        # Workers may not end their turn; set while a driver runs.
        self.keep_writing = False
        self._listeners: list[Callable[[Event], None]] = []
        self._lock = threading.Lock()
        self._bias = self._forbid(formatting.forbidden)
        self._hold = threading.Thread(target=self._keep_hold, daemon=True)
        self._hold.start()

    def listen(self, listener: Callable[[Event], None]) -> Callable[[], None]:
        """Calls ``listener`` with every event, in the thread where it happens. Returns a
        function that ends it."""
        with self._lock:
            self._listeners = [*self._listeners, listener]

        def end() -> None:
            with self._lock:
                self._listeners = [one for one in self._listeners if one is not listener]

        return end

    def starts(self) -> list[WorkerStart]:
        return [WorkerStart(link.steps, link.separated) for link in self.links]

    def write(
        self,
        link: Link,
        fed: str,
        sampling: Mapping[str, Any],
        end: str,
        logprobs: Mapping[str, Any],
    ) -> Iterator[StepText | StepReply]:
        """Writes a worker's step: its text as it comes, then the reply.

        A step that the driver has asked for is under way already; its messages are handed on.
        A step needs a token to begin with: a worker that has neither text nor a carried
        token is given the separator. Raises StepDropped if it was aborted or the team was
        closed meanwhile.
        """
        if not fed and not link.carries:
            fed = self.formatting.separator
        link.live, link.dropping = True, False
        link.attempts += 1
        sent = link.under_way.popleft() if link.under_way else None
        try:
            if self.closed:
                raise TeamClosed("the team is closed")
            messages = sent or self.handle.stream_step(
                *(link.worker, fed),
                self._sampling(sampling, self._seed(link)),
                end=end,
                **logprobs,
            )
            for message in messages:
                self._tell(link, fed, message)
                if not isinstance(message, StepStarted):
                    yield message
        except (Exception, GeneratorExit) as error:
            link.live = False
            if isinstance(error, GeneratorExit):
                self._emit(Dropped(link.worker, fed))
                raise
            if sent is not None and isinstance(error, StepNotBegun):
                spent = error.type == OUT_OF_FORWARDS
                self._emit(NotBegun(link.worker, sent.write, spent))
                raise
            if not self._expected(link, error):
                self._emit(Failed(link.worker, error))
                raise
            self._emit(Dropped(link.worker, fed))
            raise StepDropped(str(error)) from error

    def send(self, write: Write, sampling: Mapping[str, Any]) -> None:
        """Asks for a step of the driver's at once; :meth:`write` hands its messages on when
        the worker's thread comes to it. sampling: the request's parameters but the seed."""
        # The driver orders what it hears by forwards, and counts them in tokens.
        sampling = {**sampling, "stream_interval": 1}
        ahead = {"after_live": True, "separator": write.separator} if write.ahead else {}
        messages = self.handle.stream_step(
            *(write.worker, write.text),
            self._sampling(sampling, write.seed),
            end=self.formatting.end,
            number=write.number,
            until_forwards=write.until,
            **ahead,
        )
        self.links[write.worker].under_way.append(SentStep(write, messages))

    def read(
        self,
        fed: str,
        sampling: Mapping[str, Any],
        logprobs: Mapping[str, Any],
        *,
        purpose: str,
    ) -> Iterator[StepText | StepReply]:
        """A reader of the whole team, in the same manner."""
        start, began = None, 0.0
        for message in self.handle.stream_step(
            None, fed, sampling, reader=True, end="none", **logprobs
        ):
            if isinstance(message, StepStarted):
                start, began = message.step, time.monotonic()
                continue
            if isinstance(message, StepReply):
                began = began or time.monotonic()
                self._emit(Read(purpose, fed, message, start or message.step, began))
            yield message

    def say(self, text: str, link: Link | None = None) -> None:
        """Publishes a text: a worker's, or a voice from outside."""
        record = self.handle.say(text, None if link is None else link.worker)
        if link is not None:
            link.steps += 1
            link.carries = link.separated = False
        self._emit(Said(None if link is None else link.worker, text, record))

    def abort(self, link: Link, number: int | None = None) -> bool:
        """Drops the worker's live step; False if there was none (any more). number: only
        that step."""
        link.dropping = link.live
        return self.handle.abort(link.worker, number)

    def close(self) -> None:
        """Closes the team; live steps are dropped."""
        with self._lock:
            if self.closed:
                return
            self.closed = True
        self.handle.close()
        self._hold.join(HOLD_ENDS)

    def _tell(self, link: Link, fed: str, message: StepMessage) -> None:
        if isinstance(message, StepStarted):
            self._emit(Started(link.worker, message.step, fed))
        elif isinstance(message, StepText):
            self._emit(Grown(link.worker, message.text, len(message.output_ids)))
        else:
            link.live, link.attempts = False, 0
            link.steps = message.step.number or link.steps + 1
            link.carries = message.step.finish_type != "eos"
            link.separated = message.step.finish_type == "sentence"
            self._emit(Published(link.worker, fed, message))

    def _expected(self, link: Link, error: BaseException) -> bool:
        """Was the step dropped, by this program or another client, rather than failed?"""
        return isinstance(error, StepDropped) or (
            isinstance(error, HogwildError) and (self.closed or link.dropping)
        )

    def _seed(self, link: Link) -> int:
        return step_seed(self.seed, link.worker, link.steps + 1, link.attempts)

    def _sampling(self, sampling: Mapping[str, Any], seed: int) -> dict[str, Any]:
        own: dict[str, Any] = {**sampling, "sampling_seed": seed}
        if self._bias:
            own["logit_bias"] = self._bias
        if self.keep_writing and self.formatting.forbid_end_of_text:
            # SGLang keeps the tokens that end a turn from a step's first min_new_tokens.
            own["min_new_tokens"] = own["max_new_tokens"]
        return own

    def _forbid(self, texts: tuple[str, ...]) -> dict[str, float]:
        if not texts:
            return {}
        ids = self.handle.client.tokenize(texts)
        for text, tokens in zip(texts, ids, strict=True):
            if len(tokens) != 1:
                raise ValueError(
                    f"forbidden text {text!r} is {len(tokens)} tokens in this model; only "
                    f"single tokens can be forbidden: change the formatting's `forbidden`"
                )
        return {str(tokens[0]): FORBIDDEN for tokens in ids}

    def _emit(self, event: Event) -> None:
        for listener in self._listeners:
            listener(event)

    def _keep_hold(self) -> None:
        """Holds the team by one connection, so that it closes when this process dies."""
        try:
            for _ in self.handle.events(hold=True):
                pass
        except HogwildError:
            pass  # whoever waits for a step hears of it there
