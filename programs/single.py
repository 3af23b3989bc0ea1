"""Baseline: one writer, and a finisher where its budget ends before its answer.

python -m programs.single "How many primes are there below 30?"
"""

from __future__ import annotations

import sglang as sgl

from hogwild_sgl import prompts
from hogwild_sgl.transcript import Probe, Result
from programs.baseline import Run
from programs.program import COMMON, Program, Watch
from programs.settings import Settings
from programs.trace import write_trace


@sgl.function
def single(s, problem: str, settings: Settings, watch: Watch | None = None) -> Result:
    with Run("single", problem, settings, prompts.WORKER_NAMES[:1]) as run:
        trace = write_trace(run, s, 0)
        run.passes, run.prompt_tokens = trace.tokens, trace.prompt_tokens
        run.kv_tokens = trace.prompt_tokens + trace.tokens
        run.probes = [
            Probe(r.budget, r.passes, r.seconds, r.text, r.answer, r.tokens) for r in trace.readings
        ]
        answer, final_text = run.written(trace.text), trace.text
        if answer is None:
            finisher = run.finish(s, trace.text, "finisher")
            run.add(None, finisher, run.passes, number=None, kind="reader")
            run.finisher_passes = finisher.tokens
            answer, final_text = run.finished(finisher), finisher.text
        return run.result(answer, final_text, options=(*COMMON, "probes"))


PROGRAM = Program(
    name="single",
    function=single,
    about="One writer alone (baseline).",
    options=("probes",),
)

if __name__ == "__main__":
    from programs.cli import main

    main(PROGRAM)
