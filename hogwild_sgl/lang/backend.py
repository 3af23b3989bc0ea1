"""The backend of a team's states: generation becomes steps and readers.

Of a worker's state, the text that is not published yet and what ``gen`` adds to it are one
step, published when ``gen`` ends. Text that no ``gen`` follows waits, unseen by the others,
until ``team.sync()``, ``team.join()`` or the end of the program publishes it. A ``select``
scores its choices with readers that see the worker's view; the chosen text waits likewise.

The forked state itself goes on as before, until ``team.finish(...)`` is appended to it:
from there its text is a reader's. Each later ``gen`` is a new reader over all of that text.
"""

from __future__ import annotations

import threading
import warnings
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from sglang.lang.backend.base_backend import BaseBackend
from sglang.lang.backend.runtime_endpoint import RuntimeEndpoint
from sglang.lang.choices import ChoicesDecision, ChoicesSamplingMethod
from sglang.lang.interpreter import StreamExecutor
from sglang.lang.ir import SglGen, SglSamplingParams

from hogwild_sgl.client.records import StepReply, StepText
from hogwild_sgl.driver.commands import Write
from hogwild_sgl.errors import HogwildError, ServerGone, StepDropped
from hogwild_sgl.lang import scoring
from hogwild_sgl.lang.core import Link, TeamCore
from hogwild_sgl.lang.fed_text import FedText
from hogwild_sgl.lang.requests import is_constrained, logprobs_of, sampling_of

if TYPE_CHECKING:
    from hogwild_sgl.client.client import Client


class TeamBackend(RuntimeEndpoint):
    """inner: the backend of the forked state, which keeps serving it."""

    def __init__(self, inner: RuntimeEndpoint, client: Client) -> None:
        BaseBackend.__init__(self)
        self.inner = inner
        self.client = client
        self.base_url, self.api_key, self.verify = inner.base_url, inner.api_key, inner.verify
        self.model_info, self.chat_template = inner.model_info, inner.chat_template
        # SGLang's way to join states by concatenating their KV calls a route that is gone.
        self.support_concate_and_append = False
        self.core: TeamCore | None = None
        self._workers: dict[str, Link] = {}
        self._main: StreamExecutor | None = None
        self._executors: list[StreamExecutor] = []
        self._read_from: int | None = None
        self._ending = False

    def bind(self, core: TeamCore, main: StreamExecutor, workers: list[StreamExecutor]) -> None:
        self.core, self._main, self._executors = core, main, list(workers)
        for executor, link in zip(workers, core.links, strict=True):
            self._workers[executor.sid] = link
            link.sent = len(executor.text_)

    def start_reading(self) -> None:
        """From here on the main state's text is a reader's. Called as ``finish`` runs."""
        main = self._main
        assert main is not None
        if main.use_thread and threading.current_thread() is not main.worker:
            raise ValueError("append team.finish(...) to the state that the team was forked from")
        if self._read_from is None:
            self._read_from = len(main.text_)
        self.publish_idle()

    def ask(self, write: Write, expression: SglGen) -> None:
        """Lets the worker write a step of the driver's: the request goes out at once, its
        text and ``expression`` are appended to the worker's state."""
        assert self.core is not None
        executor, link = self._executors[write.worker], self.core.links[write.worker]
        sampling = sampling_of(self, executor._resolve_sampling_params(expression.sampling_params))
        del sampling["n"]
        self.core.send(write, sampling)
        executor.submit(FedText(write, link))
        executor.submit(expression)

    def generate(self, s: StreamExecutor, sampling_params: SglSamplingParams) -> tuple[Any, Any]:
        if not self._ours(s):
            return self.inner.generate(s, sampling_params)
        reply: StepReply | None = None
        try:
            for message in self._messages(s, sampling_params):
                reply = message if isinstance(message, StepReply) else reply
        except StepDropped as error:
            return "", self._roll_back(s, error)
        assert reply is not None
        if s.sid in self._workers:  # the executor appends the text when this returns
            self._workers[s.sid].sent = len(s.text_) + len(reply.text)
        return reply.text, _meta(reply)

    def generate_stream(
        self, s: StreamExecutor, sampling_params: SglSamplingParams
    ) -> Iterator[tuple[str, Any]]:
        if not self._ours(s):
            yield from self.inner.generate_stream(s, sampling_params)
            return
        done = 0
        try:
            for message in self._messages(s, sampling_params):
                if isinstance(message, StepText):
                    done += len(message.text)
                    yield message.text, {}
                else:
                    yield message.text[done:], _meta(message)
        except StepDropped as error:
            yield "", self._roll_back(s, error)
            return
        if s.sid in self._workers:
            self._workers[s.sid].sent = len(s.text_)

    def select(
        self,
        s: StreamExecutor,
        choices: list[str],
        temperature: float,
        choices_method: ChoicesSamplingMethod,
    ) -> ChoicesDecision:
        if not self._ours(s):
            return self.inner.select(s, choices, temperature, choices_method)
        if temperature > 1e-5:
            raise ValueError("sgl.select has no temperature; leave it at 0")
        assert self.core is not None
        link = self._workers.get(s.sid)
        pending = self._pending(s)
        context, *joined = self.client.tokenize([pending, *(pending + c for c in choices)])
        found = scoring.candidates(context, joined)
        handle, worker = self.core.handle, None if link is None else link.worker

        def score(candidate: scoring.Candidate) -> list[Any]:
            reply = handle.read(
                candidate.ids,
                {"max_new_tokens": 0, "temperature": 0},
                worker=worker,
                return_logprob=True,
                logprob_start_len=0,
            )
            return list(reply.meta_info["input_token_logprobs"])[-candidate.length :]

        return scoring.decide(choices, found, choices_method, score, self.client)

    def publish_pending(self, s: StreamExecutor) -> None:
        """Publishes a worker's text that no ``gen`` followed; its thread must be idle."""
        link, pending = self._workers[s.sid], self._pending(s)
        if pending and s.error_ is None:
            assert self.core is not None
            self.core.say(pending, link)
            link.sent = len(s.text_)

    def commit_lazy_operations(self, s: StreamExecutor) -> None:
        if not self._ours(s):
            self.inner.commit_lazy_operations(s)

    def cache_prefix(self, prefix_str: str) -> None:
        self.inner.cache_prefix(prefix_str)

    def fill_image(self, s: StreamExecutor) -> None:
        self.inner.fill_image(s)

    def publish_idle(self) -> None:
        """The same for every worker whose thread is idle; the others are left alone."""
        for executor in self._executors:
            if executor.queue.unfinished_tasks == 0:
                self.publish_pending(executor)

    def end_program(self, s: StreamExecutor) -> None:
        """The program is over: the team closes once the main state has drained."""
        self.inner.end_program(s)
        if s is not self._main or self.core is None or self._ending:
            return
        self._ending = True
        if s.use_thread and s.worker.is_alive():
            threading.Thread(target=self._close_after, args=(s.worker,)).start()
        else:
            self.close()

    def close(self) -> None:
        """Publishes what idle workers have pending, closes the team, ends its threads."""
        assert self.core is not None
        try:
            if not self.core.closed:
                self.publish_idle()
        finally:
            # SGLang ends a state's thread when the state is collected, which can be too
            # late: the interpreter waits for threads first when it exits.
            for executor in self._executors:
                executor.end()
            self.core.close()

    def _close_after(self, worker: threading.Thread) -> None:
        worker.join()
        try:
            self.close()
        except ServerGone:
            pass  # the team is gone with it, or closes with the connection that holds it
        except HogwildError as error:
            warnings.warn(f"the team could not be closed: {error}", stacklevel=1)

    def _ours(self, s: StreamExecutor) -> bool:
        if s.sid in self._workers:
            return True
        reading = s is self._main and self._read_from is not None
        return reading and self.core is not None and not self.core.closed

    def _pending(self, s: StreamExecutor) -> str:
        link = self._workers.get(s.sid)
        return s.text_[link.sent if link else self._read_from :]

    def _messages(
        self, s: StreamExecutor, params: SglSamplingParams
    ) -> Iterator[StepText | StepReply]:
        """One step of a worker, or one reader of the main state."""
        if params.n > 1:
            raise ValueError(
                f"gen(n={params.n}): a step has one continuation; for several, open a team "
                f"with the layout 'independent'"
            )
        assert self.core is not None
        sampling = sampling_of(self, params)
        del sampling["n"]
        link, fed = self._workers.get(s.sid), self._pending(s)
        if link is None:
            return self.core.read(fed, sampling, logprobs_of(params), purpose="finish")
        end = "none" if is_constrained(params) else self.core.formatting.end
        return self.core.write(link, fed, sampling, end, logprobs_of(params))

    def _roll_back(self, s: StreamExecutor, error: StepDropped) -> dict[str, Any]:
        """A dropped step leaves nothing in its worker's text; a dropped reader is an error."""
        if s.sid not in self._workers:
            raise error
        s.text_ = s.text_[: self._workers[s.sid].sent]
        return {"dropped": True}


def _meta(reply: StepReply) -> dict[str, Any]:
    """SGLang's ``meta_info`` with the step's record beside it."""
    return {**reply.meta_info, "step": reply.step}
