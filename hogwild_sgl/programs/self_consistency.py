"""Baseline: independent traces of one problem, joined at the end.

``--vote finisher``: one finisher reads all traces and answers. ``--vote majority``: each
trace is answered by itself, and the answer given most often counts; where a trace ends
without one, a finisher of its own answers, all of them side by side.

    python -m programs.self_consistency "How many primes are there below 30?" --workers 4
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import sglang as sgl

from hogwild_sgl import prompts
from hogwild_sgl.answers.extract import majority
from hogwild_sgl.program.program import COMMON, Program, Watch
from hogwild_sgl.program.settings import Settings
from hogwild_sgl.programs.baseline import Run, Written, at_once, solo
from hogwild_sgl.programs.trace import Trace, write_trace
from hogwild_sgl.prompts.templates import fill
from hogwild_sgl.transcript import Probe, Result

if TYPE_CHECKING:
    from sglang.lang.interpreter import ProgramState


@sgl.function
def self_consistency(s, problem: str, settings: Settings, watch: Watch | None = None) -> Result:
    names = settings.worker_names
    with Run("self_consistency", problem, settings, names) as run:
        states = list(enumerate(run.branch(s, len(names))))
        traces = at_once(states, lambda item: write_trace(run, item[1], item[0]))
        run.passes = max(trace.tokens for trace in traces)
        run.prompt_tokens = traces[0].prompt_tokens
        run.kv_tokens = run.prompt_tokens + sum(trace.tokens for trace in traces)
        by_budget = zip(*(trace.readings for trace in traces), strict=True)
        run.probes = [_vote(readings) for readings in by_budget]
        options = (*COMMON, "workers", "vote", "probes")
        if settings.vote == "majority":
            pairs = list(zip(states, traces, strict=True))
            answers = list(at_once(pairs, lambda pair: _own_answer(run, *pair[0], pair[1])))
            # A trace that ends early is read early: what counts is when the last reading ends.
            run.finisher_passes = max(step.end_pass for step in run.steps) - run.passes
            return run.result(majority(answers), "", options=options, answers=answers)
        judged = _judge(run, s, traces)
        return run.result(run.finished(judged), judged.text, options=options)


def _judge(run: Run, s: ProgramState, traces: list[Trace]) -> Written:
    """What a finisher writes that reads all traces."""
    settings = run.settings
    joined = join_texts(settings, run.names, [trace.text for trace in traces])
    text = prompts.texts(settings.formatting.language).judge
    solo(s, settings, fill(text, {"problem": run.problem, "texts": joined}, 0))
    judged = run.finish(s, "", "finisher")
    run.add(None, judged, run.passes, number=None, kind="reader")
    run.finisher_passes = judged.tokens
    return judged


def join_texts(settings: Settings, names: tuple[str, ...], texts: list[str]) -> str:
    """Several writers' texts in one, each under its name."""
    heading = prompts.texts(settings.formatting.language).attempt
    pairs = zip(names, texts, strict=True)
    return "\n\n".join(f"{fill(heading, {'name': n}, 0)}\n{text.strip()}" for n, text in pairs)


def _own_answer(run: Run, worker: int, s: ProgramState, trace: Trace) -> str | None:
    """A trace's answer; a finisher gives it where the trace has none."""
    answer = run.written(trace.text)
    if answer is not None:
        return answer
    finisher = run.finish(s, trace.text, "answer", worker)
    run.add(None, finisher, trace.tokens, number=None, kind="reader")
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
    about="Independent traces, then one finisher over all or a vote (baseline).",
    options=("workers", "names", "vote", "probes"),
)

if __name__ == "__main__":
    from hogwild_sgl.program.command import main

    main(PROGRAM)
