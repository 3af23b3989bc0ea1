"""A team of SGLang program states.

    s += prompts.collaboration(problem, workers=("Alice", "Bob"))
    team = hogwild.fork(s, workers=("Alice", "Bob"))
    team.check(every=1024)
    team.reason(max_forward_passes=4096, stop=hogwild.boxed_answer)
    s += team.finish() + sgl.gen("answer", max_tokens=64, stop="\\n")

or, step by step, ``team[0] += "**Alice [1]:** " + sgl.gen("first", max_tokens=200)``.
See docs/programs.md.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Self

from sglang.lang.backend.runtime_endpoint import RuntimeEndpoint
from sglang.lang.interpreter import ProgramState, ProgramStateGroup
from sglang.lang.ir import SglConstantText, SglGen
from sglang.lang.tracer import StopTracing, TracerProgramState

from hogwild_sgl import prompts
from hogwild_sgl.client.client import Client
from hogwild_sgl.client.records import Snapshot
from hogwild_sgl.driver.commands import CheckRule, ConflictRule, Rules, StopRule, Write
from hogwild_sgl.driver.driver import Driver
from hogwild_sgl.errors import HogwildError
from hogwild_sgl.lang.backend import TeamBackend
from hogwild_sgl.lang.chat import conversation
from hogwild_sgl.lang.core import TeamCore
from hogwild_sgl.lang.events import Event
from hogwild_sgl.lang.executor import WorkerExecutor
from hogwild_sgl.lang.loop import OnYes, Outcome, drive
from hogwild_sgl.lang.recorder import Recorder
from hogwild_sgl.prompts.formatting import Formatting, check_workers
from hogwild_sgl.transcript import Result


class Team(ProgramStateGroup):
    """States of one team, by number or name. Made by :func:`fork`.

    As a context manager it closes the team; otherwise the end of the program does.
    """

    def __init__(
        self, source: ProgramState, core: TeamCore, backend: TeamBackend, recorder: Recorder
    ) -> None:
        main = source.stream_executor
        text = str(main.text_) + core.formatting.turn_start()
        workers = [WorkerExecutor(main, backend, name, text) for name in core.names]
        super().__init__([ProgramState(worker) for worker in workers], source)
        self.core = core
        self.recorder = recorder
        self.names = core.names
        self._backend = backend
        self._check: CheckRule | None = None
        self._on_yes: OnYes | None = None
        self._driver: Driver | None = None
        self._outcome: Outcome | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            self.close()
        except HogwildError:
            if kind is None:
                raise

    def __len__(self) -> int:
        return len(self.states)

    def __iter__(self) -> Iterator[ProgramState]:
        return iter(self.states)

    def __getitem__(self, worker: int | str) -> ProgramState:
        return self.states[self._number(worker)]

    def __setitem__(self, worker: int | str, value: ProgramState) -> None:
        # Python stores the result of ``team[0] += ...``; it is the state itself.
        if self[worker] is not value:
            raise TypeError("a team's states cannot be replaced")

    def sync(self) -> None:
        """Waits for all workers and publishes the text that no ``gen`` followed."""
        for state in self.states:
            state.sync()
            self._backend.publish_pending(state.stream_executor)

    def join(self, mode: str = "gather_variable") -> None:
        """SGLang's join, after :meth:`sync`. The team stays open for ``finish``."""
        self.sync()
        super().join(mode)

    def say(self, text: str) -> None:
        """A voice from outside, read by every worker from now on."""
        if not text:
            raise ValueError("there is nothing to say")
        self.core.say(self.core.formatting.voice_text(text))

    def abort(self, worker: int | str) -> bool:
        """Drops a worker's live step whole; its ``gen`` gives an empty text. False if it
        had no live step."""
        return self.core.abort(self.core.links[self._number(worker)])

    def snapshot(self) -> Snapshot:
        return self.core.handle.snapshot()

    def on_event(self, listener: Callable[[Event], None]) -> Callable[[], None]:
        """Calls ``listener`` with what happens, in the worker's thread; see events.py.
        Returns a function that ends it."""
        return self.core.listen(listener)

    def check(
        self,
        every: int = 1024,
        text: str | None = None,
        who: str = "random",
        on_yes: OnYes | None = None,
    ) -> None:
        """The redundancy check of :meth:`reason`, also while it runs.

        every: generated tokens between checks, summed over the workers. text: the
        question; the formatting's if None. who: ``random``, ``first`` or ``all``. on_yes:
        called with (check, team) when the answer is yes; a text that it returns is put at
        the start of that worker's next step.
        """
        self._check = CheckRule(every, who, text)
        self._on_yes = on_yes or self._on_yes
        if self._driver is not None:
            self._driver.set_check(self._check)

    def reason(
        self,
        max_forward_passes: int,
        stop: StopRule | None = None,
        *,
        step_tokens: int | None = None,
        probes: Sequence[int] = (),
        probe_tokens: int = 64,
        hints: Sequence[tuple[int, str]] = (),
        conflict: ConflictRule | None = None,
        max_retries: int = 1,
        **sampling: Any,
    ) -> Outcome:
        """Lets the workers write, all at once, until the budget or ``stop`` ends it.

        Fields as in :class:`hogwild_sgl.driver.commands.Rules`; sampling: as for ``sgl.gen``
        (temperature, top_p, ...), otherwise those of ``run``. When a step satisfies
        ``stop``, the others' half-written steps stay live: a finisher reads them, and the
        end of the program drops them.
        """
        self.sync()
        rules = Rules(
            workers=self.names,
            formatting=self.core.formatting,
            budget=max_forward_passes,
            seed=self.core.seed,
            step_tokens=step_tokens,
            check=self._check,
            stop=stop,
            conflict=conflict,
            max_retries=max_retries,
            probe_at=tuple(probes),
            probe_tokens=probe_tokens,
            hints=tuple(hints),
        )
        passes = self.snapshot().team_forwards
        self._driver = Driver(rules, self.core.starts(), passes=passes)
        try:
            outcome = drive(self, self._driver, sampling)
        finally:
            self._driver = None
        self._outcome = outcome
        return outcome

    def ask(self, write: Write, expression: SglGen) -> None:
        """Lets a worker write a step of the driver's, see ``TeamBackend.ask``."""
        self._backend.ask(write, expression)

    def answered_yes(self, check: Any) -> str | None:
        """Tells the program of a check answered with yes."""
        return self._on_yes(check, self) if self._on_yes else None

    def finish(self, text: str | None = None) -> FinishText:
        """To append to the forked state: makes its text, from here on, that of a reader
        who sees everything the team has published and is writing.

            s += team.finish("The final answer is ") + sgl.gen("answer")

        text: the formatting's finisher if None. The reader recomputes none of the team's
        tokens, and nobody sees it.
        """
        return FinishText(self._backend, self.core.formatting.finish_text(text))

    def close(self) -> None:
        """Closes the team now rather than at the end of the program."""
        self._backend.close()

    def result(
        self,
        program: str,
        problem: str,
        *,
        answer: str | None,
        final_text: str,
        settings: Mapping[str, Any] | None = None,
        started_at: float | None = None,
    ) -> Result:
        """The run so far as a Result. Call it after the finisher, while the team is open."""
        snapshot = self.snapshot()
        recorder, info = self.recorder, self.core.handle.info
        outcome = self._outcome
        seconds = time.monotonic() - recorder.began
        return Result(
            program=program,
            problem=problem,
            answer=answer,
            final_text=final_text,
            workers=self.names,
            steps=recorder.steps(snapshot),
            budget=outcome.budget if outcome else recorder.passes,
            stopped=outcome.reason if outcome else "finished",
            passes=outcome.passes if outcome else recorder.passes,
            finisher_passes=recorder.finisher_passes,
            tokens=tuple(recorder.tokens),
            prompt_tokens=info.prompt_tokens,
            kv_tokens=snapshot.kv_tokens,
            seconds=seconds,
            seed=self.core.seed,
            started_at=time.time() - seconds if started_at is None else started_at,
            checks=outcome.checks if outcome else (),
            probes=outcome.probes if outcome else (),
            settings={
                "layout": info.layout,
                "formatting": self.core.formatting.to_dict(),
                **(settings or {}),
            },
        )

    def _number(self, worker: int | str) -> int:
        if isinstance(worker, str):
            if worker not in self.names:
                raise KeyError(f"no worker {worker!r}; the team is {list(self.names)}")
            return self.names.index(worker)
        if not -len(self.names) <= worker < len(self.names):
            raise IndexError(f"worker {worker} of a team of {len(self.names)}")
        return worker % len(self.names)


class FinishText(SglConstantText):
    """The finisher's text; as it is appended, the state begins to read."""

    def __init__(self, backend: TeamBackend, text: str) -> None:
        super().__init__(text)
        self._backend = backend

    @property
    def value(self) -> str:
        self._backend.start_reading()
        return self._text

    @value.setter
    def value(self, text: str) -> None:
        self._text = text

    def __repr__(self) -> str:
        return f"FinishText({self._text!r})"


def fork(
    s: ProgramState,
    workers: Sequence[str] = ("Alice", "Bob"),
    *,
    layout: str = "combined",
    formatting: Formatting | None = None,
    seed: int = 0,
    idle_timeout: float | None = 600.0,
) -> Team:
    """Opens a team on what ``s`` holds so far, and returns a state for each worker.

    s: its chat roles go through the model's own chat template; a state without roles is
    sent as it is. workers: 2 to 16 different names. layout: see docs/http.md. formatting:
    headers between the steps and everything :meth:`Team.reason` feeds; for mathematics in
    English if None. seed: gives every step its own random stream. idle_timeout: seconds
    without a request after which the server closes the team.

    The team closes when the program ends, or when this process does.
    Raises PatchNotActive where the server is plain SGLang, BadRequest for a prompt or
    layout it refuses.
    """
    names = check_workers(workers)
    if isinstance(s, TracerProgramState):
        raise StopTracing  # how SGLang's own fork ends the search for a common prefix
    executor = s.stream_executor
    backend = executor.backend
    if not isinstance(backend, RuntimeEndpoint):
        raise TypeError(
            f"a team needs an SGLang server as its backend, not {type(backend).__name__}: "
            f"sgl.set_default_backend(hogwild.Endpoint(url))"
        )
    formatting = formatting or prompts.formatting()
    began = time.monotonic()
    executor.sync()
    if executor.error_ is not None:
        raise executor.error_
    client = client_of(backend)
    client.info()
    prompt = _prompt(executor, client, backend, formatting)
    handle = client.open(
        workers=names,
        layout=layout,
        formatting=formatting.headers_for(names),
        seed=seed,
        idle_timeout=idle_timeout,
        **prompt,
    )
    try:
        core = TeamCore(handle, formatting, seed)
    except BaseException:
        handle.close()
        raise
    recorder = Recorder(names, began)
    core.listen(recorder)
    team_backend = TeamBackend(backend, client)
    team = Team(s, core, team_backend, recorder)
    team_backend.bind(core, executor, [state.stream_executor for state in team])
    executor.backend = team_backend
    return team


def client_of(backend: RuntimeEndpoint) -> Client:
    """The client that belongs to a backend; made once for an SGLang RuntimeEndpoint."""
    client = getattr(backend, "client", None)
    if client is None:
        client = Client(backend.base_url, api_key=backend.api_key)
        backend.client = client
    return client


def _prompt(
    executor: Any, client: Client, backend: RuntimeEndpoint, formatting: Formatting
) -> dict[str, Any]:
    """What opens the team: token ids for a conversation, else the state's text."""
    talk = conversation(executor)
    if talk is None:
        text = str(executor.text_)
        if not text:
            raise ValueError(
                "the team has no prompt: append the problem to the state before hogwild.fork"
            )
        return {"prompt": text + formatting.turn_start()}
    kwargs = {**getattr(backend, "chat_template_kwargs", {}), **formatting.chat_template_kwargs}
    return {"input_ids": client.render(talk.messages, talk.turn + formatting.turn_start(), kwargs)}
