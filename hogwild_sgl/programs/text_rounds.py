"""Baseline: agents that exchange finished texts.

In each round every agent writes a solution, after the first round with the others' latest
texts in its prompt. Then one finisher reads all of them. A round may use an equal part of
the budget.

    python -m programs.text_rounds "How many primes are there below 30?" --rounds 2
"""

from __future__ import annotations

import sglang as sgl

from hogwild_sgl import prompts
from hogwild_sgl.program.program import COMMON, Program, Watch
from hogwild_sgl.program.settings import Settings
from hogwild_sgl.programs.baseline import Run, Written, at_once, solo
from hogwild_sgl.programs.self_consistency import join_texts
from hogwild_sgl.prompts.templates import fill
from hogwild_sgl.transcript import Result


@sgl.function
def text_rounds(s, problem: str, settings: Settings, watch: Watch | None = None) -> Result:
    texts = prompts.texts(settings.formatting.language)
    names = settings.worker_names
    with Run("text_rounds", problem, settings, names) as run:
        each = max(1, settings.budget // settings.rounds)
        latest: list[Written] = []

        for number in range(1, settings.rounds + 1):
            before = list(latest)

            def agent(worker: int, number: int = number, before: list[Written] = before) -> Written:
                state = run.branch(s)[0]
                prompt = problem
                if before:
                    others = [w for w in range(len(names)) if w != worker] or [worker]
                    joined = join_texts(
                        settings,
                        tuple(names[w] for w in others),
                        [before[w].text for w in others],
                    )
                    prompt = fill(texts.round, {"problem": problem, "texts": joined}, 0)
                solo(state, settings, prompt)
                return run.generate(state, "", each, "round", number, worker)

            latest = at_once(range(len(names)), agent)
            for worker, written in enumerate(latest):
                run.add(worker, written, run.passes, number=number, kind="step")
            run.passes += max(written.tokens for written in latest)
            run.prompt_tokens += sum(written.prompt_tokens for written in latest)
            held = sum(written.prompt_tokens + written.tokens for written in latest)
            run.kv_tokens = max(run.kv_tokens, held)

        joined = join_texts(settings, names, [written.text for written in latest])
        solo(s, settings, fill(texts.judge, {"problem": problem, "texts": joined}, 0))
        judged = run.finish(s, "", "finisher")
        run.add(None, judged, run.passes, number=None, kind="reader")
        run.finisher_passes = judged.tokens
        return run.result(
            run.finished(judged),
            judged.text,
            options=(*COMMON, "workers", "rounds"),
            answers=[run.written(written.text) for written in latest],
        )


PROGRAM = Program(
    name="text_rounds",
    function=text_rounds,
    about="Agents that exchange finished texts, round by round (baseline).",
    options=("workers", "names", "rounds"),
)

if __name__ == "__main__":
    from hogwild_sgl.program.command import main

    main(PROGRAM)
