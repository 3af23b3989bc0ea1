"""Baseline: independent traces of one problem, joined at the end.

Each trace is answered by itself; the majority of these answers is one result, and a
finisher that reads all traces gives another. ``--vote`` says which one counts; both are in
the result's settings.

    python -m programs.self_consistency "How many primes are there below 30?" --workers 4
"""

from __future__ import annotations

import sglang as sgl

from hogwild_sgl import prompts
from hogwild_sgl.answers import majority
from hogwild_sgl.templates import fill
from hogwild_sgl.transcript import Probe, Result
from programs.baseline import Run, at_once, solo
from programs.program import COMMON, Program, Watch
from programs.settings import Settings
from programs.trace import Trace, write_trace


@sgl.function
def self_consistency(s, problem: str, settings: Settings, watch: Watch | None = None) -> Result:
    names = settings.worker_names
    with Run("self_consistency", problem, settings, names) as run:
        states = list(enumerate(run.branch(s, len(names))))
        traces = at_once(states, lambda item: write_trace(run, item[1], item[0]))
        run.passes = max(trace.tokens for trace in traces)
        run.prompt_tokens = traces[0].prompt_tokens
        run.kv_tokens = run.prompt_tokens + sum(trace.tokens for trace in traces)
        answers = at_once(
            zip(states, traces, strict=True), lambda pair: _own_answer(run, *pair[0], pair[1])
        )
        by_budget = zip(*(trace.readings for trace in traces), strict=True)
        run.probes = [_vote(readings) for readings in by_budget]
        voted = majority(answers)
        joined = join_texts(settings, names, [trace.text for trace in traces])
        texts = prompts.texts(settings.formatting.language)
        solo(s, settings, fill(texts.judge, {"problem": problem, "texts": joined}, 0))
        judged = run.finish(s, "", "finisher")
        run.add(None, judged, run.passes, number=None, kind="reader")
        run.finisher_passes = judged.tokens
        judge = run.finished(judged)
        return run.result(
            voted if settings.vote == "majority" else judge,
            judged.text,
            options=(*COMMON, "workers", "vote", "probes"),
            answers=answers,
            majority=voted,
            finisher=judge,
        )


def join_texts(settings: Settings, names: tuple[str, ...], texts: list[str]) -> str:
    """Several writers' texts in one, each under its name."""
    heading = prompts.texts(settings.formatting.language).attempt
    pairs = zip(names, texts, strict=True)
    return "\n\n".join(f"{fill(heading, {'name': n}, 0)}\n{text.strip()}" for n, text in pairs)


def _own_answer(run: Run, worker: int, s: object, trace: Trace) -> str | None:
    """A trace's answer; its finisher runs beside the others' and is no pass of the run."""
    answer = run.written(trace.text)
    if answer is not None:
        return answer
    finisher = run.finish(s, trace.text, "answer", worker)
    return run.finished(finisher)


def _vote(readings: tuple) -> Probe:
    first = readings[0]
    return Probe(
        budget=first.budget,
        passes=max(reading.passes for reading in readings),
        seconds=max(reading.seconds for reading in readings),
        text="\n".join(reading.answer or "-" for reading in readings),
        answer=majority([reading.answer for reading in readings]),
        tokens=sum(reading.tokens for reading in readings),
    )


PROGRAM = Program(
    name="self_consistency",
    function=self_consistency,
    about="Independent traces, then a vote or one finisher over all (baseline).",
    options=("workers", "names", "vote", "probes"),
)

if __name__ == "__main__":
    from programs.cli import main

    main(PROGRAM)
