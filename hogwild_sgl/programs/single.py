"""Baseline: one writer, and a finisher where its budget ends before its answer.

python -m programs.single "How many primes are there below 30?"
"""

from __future__ import annotations

import sglang as sgl

from hogwild_sgl import prompts
from hogwild_sgl.program.program import COMMON, Program, Watch
from hogwild_sgl.program.settings import Settings
from hogwild_sgl.programs.baseline import Run
from hogwild_sgl.programs.trace import write_trace
from hogwild_sgl.transcript import Probe, Result


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
    from hogwild_sgl.program.command import main

    main(PROGRAM)
