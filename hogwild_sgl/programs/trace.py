"""One writer's whole text, with probes of its answer on the way."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from hogwild_sgl.programs.baseline import Run, Written, at_once, solo

if TYPE_CHECKING:
    from sglang.lang.interpreter import ProgramState


@dataclass(frozen=True)
class Reading:
    """A trace's answer at one budget.

    text: what the answer was taken from: the trace itself where it holds an answer by then,
    else what the finisher wrote. tokens: what reading it cost beside the trace.
    """

    budget: int
    passes: int
    seconds: float
    text: str
    answer: str | None
    tokens: int


@dataclass(frozen=True)
class Trace:
    """A writer's text. ended: it ended its turn before the budget was used."""

    text: str
    tokens: int
    prompt_tokens: int
    ended: bool
    readings: tuple[Reading, ...]


def write_trace(run: Run, s: ProgramState, worker: int) -> Trace:
    """Lets one writer write until the budget is used or its turn ends.

    At each budget in ``settings.probes`` the state is copied and a finisher reads the
    answer from the copy, while the writer goes on.
    """
    settings = run.settings
    solo(s, settings, run.problem)
    parts: list[Written] = []
    copies: list[tuple[int, int, float, str, ProgramState]] = []
    tokens, ended = 0, False
    for limit in sorted({*settings.probes, settings.budget}):
        part = run.generate(s, "", limit - tokens, "trace", worker, limit)
        parts.append(part)
        tokens += part.tokens
        ended = part.finish != "length"
        if ended or tokens >= settings.budget:
            break
        so_far = "".join(part.text for part in parts)
        copies.append((limit, tokens, run.now, so_far, run.branch(s)[0]))
    text = "".join(part.text for part in parts)
    whole = Written(
        fed="",
        text=text,
        tokens=tokens,
        prompt_tokens=parts[0].prompt_tokens,
        finish=parts[-1].finish,
        start=parts[0].start,
        end=parts[-1].end,
    )
    run.add(worker, whole, 0, number=1, kind="step")
    later = [limit for limit in settings.probes if limit not in {copy[0] for copy in copies}]
    if later:
        copies += [(limit, tokens, run.now, text, run.branch(s)[0]) for limit in later[:1]]
    readings = at_once(copies, lambda copy: _read(run, worker, *copy))
    # A trace that ended early has the same answer at every later budget.
    readings += [Reading(limit, *_rest(readings[-1])) for limit in later[1:]]
    return Trace(text, tokens, parts[0].prompt_tokens, ended, tuple(readings))


def _read(
    run: Run,
    worker: int,
    budget: int,
    passes: int,
    seconds: float,
    written: str,
    copy: ProgramState,
) -> Reading:
    answer = run.written(written)
    if answer is not None:
        return Reading(budget, passes, seconds, written, answer, 0)
    finisher = run.finish(copy, written, "probe", worker, budget)
    return Reading(budget, passes, seconds, finisher.text, run.finished(finisher), finisher.tokens)


def _rest(reading: Reading) -> tuple[int, float, str, str | None, int]:
    return reading.passes, reading.seconds, reading.text, reading.answer, reading.tokens
