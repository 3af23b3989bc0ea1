"""What the baselines have in common: ordinary states, timed, and a transcript of them.

Passes of a baseline are what it would take if each generation's forward passes ran one
after the other and parallel ones side by side: one pass for each generated token, the
longest of those that run at the same time.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self, TypeVar

import sglang as sgl

from hogwild_sgl import seeds
from hogwild_sgl.driver.stops import finished_answer, written_answer
from hogwild_sgl.lang.endpoint import set_seed
from hogwild_sgl.program.settings import Settings
from hogwild_sgl.transcript import Probe, Result, Step

if TYPE_CHECKING:
    from sglang.lang.interpreter import ProgramState

_Item, _Out = TypeVar("_Item"), TypeVar("_Out")


@dataclass(frozen=True)
class Written:
    """One generation. start, end: seconds since the run began."""

    fed: str
    text: str
    tokens: int
    prompt_tokens: int
    finish: str
    start: float
    end: float


@dataclass
class Run:
    """A baseline's run so far; a context manager that ends the states it branched."""

    program: str
    problem: str
    settings: Settings
    names: tuple[str, ...]
    began: float = field(default_factory=time.monotonic)
    started_at: float = field(default_factory=time.time)
    steps: list[Step] = field(default_factory=list)
    probes: list[Probe] = field(default_factory=list)
    passes: int = 0
    finisher_passes: int = 0
    prompt_tokens: int = 0
    kv_tokens: int = 0
    branches: list[ProgramState] = field(default_factory=list)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        # Not left to the garbage collector: each branch has a thread, and an exception's
        # traceback can keep them until the interpreter waits for them as it exits.
        for branch in self.branches:
            branch.stream_executor.end()

    def branch(self, s: ProgramState, count: int = 1) -> list[ProgramState]:
        """Copies of a state that go on by themselves."""
        states = s.fork(count).states
        self.branches += states
        return states

    @property
    def now(self) -> float:
        return time.monotonic() - self.began

    def generate(
        self,
        s: ProgramState,
        fed: str,
        max_tokens: int,
        *path: str | int,
        stop: Sequence[str] = (),
    ) -> Written:
        """Appends ``fed`` and what the model writes after it. path: names its random
        stream. Raises what made the state fail."""
        set_seed(s, seeds.sampling_seed(self.settings.seed, self.program, *path))
        name = "/".join(map(str, path))
        start = self.now
        if fed:
            s += fed
        s += sgl.gen(name, max_tokens=max_tokens, stop=list(stop))
        s.sync()
        if s.error() is not None:
            raise s.error()
        meta = s.get_meta_info(name)
        return Written(
            fed=fed,
            text=s[name],
            tokens=meta["completion_tokens"],
            prompt_tokens=meta["prompt_tokens"],
            finish=(meta.get("finish_reason") or {}).get("type", "stop"),
            start=start,
            end=self.now,
        )

    def finish(self, s: ProgramState, written: str, *path: str | int) -> Written:
        """Lets the finisher follow what has been ``written`` in the assistant's turn."""
        formatting = self.settings.formatting
        return self.generate(
            s,
            formatting.finish_text(written=written),
            self.settings.finisher_tokens,
            *path,
            stop=formatting.finisher_stop,
        )

    def written(self, text: str) -> str | None:
        """The answer in a writer's own text."""
        return written_answer(self.settings.formatting, text)

    def finished(self, finisher: Written) -> str | None:
        """The answer that a finisher gave."""
        return finished_answer(self.settings.formatting, finisher.fed, finisher.text)

    def add(
        self,
        worker: int | None,
        written: Written,
        start: int,
        *,
        number: int | None,
        kind: str,
        name: str | None = None,
    ) -> None:
        """Puts a generation into the transcript; it began ``start`` passes into the run.

        name: what the transcript calls it, if that is not the worker's own name.
        """
        if name is None and worker is not None:
            name = self.names[worker]
        self.steps.append(
            Step(
                kind=kind,
                worker=worker,
                name=name,
                number=number,
                index=None,
                fed=written.fed,
                text=written.text,
                fed_tokens=0,
                output_tokens=written.tokens,
                start_pass=start,
                end_pass=start + written.tokens,
                start_seconds=written.start,
                end_seconds=written.end,
                finish=written.finish,
            )
        )

    def result(self, answer: str | None, final_text: str, **settings: Any) -> Result:
        tokens = [0] * len(self.names)
        for step in self.steps:
            if step.worker is not None:
                tokens[step.worker] += step.output_tokens
        names = settings.pop("options", ())
        return Result(
            program=self.program,
            problem=self.problem,
            answer=answer,
            final_text=final_text,
            workers=self.names,
            steps=tuple(sorted(self.steps, key=lambda step: step.end_pass)),
            budget=self.settings.budget,
            stopped="budget" if self.passes >= self.settings.budget else "finished",
            passes=self.passes,
            finisher_passes=self.finisher_passes,
            tokens=tuple(tokens),
            prompt_tokens=self.prompt_tokens,
            kv_tokens=self.kv_tokens,
            seconds=self.now,
            seed=self.settings.seed,
            started_at=self.started_at,
            probes=tuple(self.probes),
            settings={**self.settings.to_dict(*names), **settings},
        )


def solo(s: ProgramState, settings: Settings, problem: str) -> None:
    """A single writer's prompt, up to the assistant's turn."""
    formatting = settings.formatting
    if formatting.solo:
        s += sgl.system(formatting.solo)
    s += sgl.user(problem)
    if formatting.thinking == "open":
        s += formatting.thinking_open


def at_once(items: Iterable[_Item], work: Callable[[_Item], _Out]) -> list[_Out]:
    """``work`` on all items at the same time; the first failure is raised."""
    todo = list(items)
    with ExitStack() as stack:
        pool = stack.enter_context(ThreadPoolExecutor(max(1, len(todo))))
        return list(pool.map(work, todo))
