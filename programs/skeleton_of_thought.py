"""Baseline: a plan, its parts worked out side by side, and a merge.

The plan and the merge may use a quarter of the budget each, and the parts what is left:
all of it for each part if all run at once, or shared among the parts that one of
``--threads`` threads works on in turn.

    python -m programs.skeleton_of_thought "Compare heat pumps and gas." --threads 2
"""

from __future__ import annotations

import re

import sglang as sgl

from hogwild_sgl import prompts
from hogwild_sgl.templates import fill
from hogwild_sgl.transcript import Result
from programs.baseline import Run, Written, at_once, solo
from programs.program import COMMON, Program, Watch
from programs.self_consistency import join_texts
from programs.settings import Settings

POINT = re.compile(r"^\s*(?:\d+\s*[.)、:]|[-*•])\s*(.+?)\s*$", re.MULTILINE)


def points_of(plan: str, most: int) -> list[str]:
    """The points of a plan, one per numbered line; the whole plan if it has no list."""
    found = [match.strip("* ") for match in POINT.findall(plan)]
    return [point for point in found if point][:most] or [plan.strip() or "?"]


@sgl.function
def skeleton_of_thought(s, problem: str, settings: Settings, watch: Watch | None = None) -> Result:
    texts = prompts.texts(settings.formatting.language)
    values = {"problem": problem, "count": str(settings.points)}
    quarter = max(1, settings.budget // 4)
    run = Run("skeleton_of_thought", problem, settings, ("thread 1",))

    planner = s.fork(1)[0]
    solo(planner, settings, fill(texts.plan, values, 0))
    plan = run.generate(planner, "", quarter, "plan")
    run.add(0, plan, 0, number=1, kind="step")
    points = points_of(plan.text, settings.points)
    values["plan"] = "\n".join(f"{i}. {point}" for i, point in enumerate(points, 1))

    threads = min(settings.threads or len(points), len(points))
    run.names = tuple(f"thread {i + 1}" for i in range(threads))
    left = max(1, settings.budget - plan.tokens - quarter)

    def thread(number: int) -> list[tuple[int, Written]]:
        share = list(enumerate(points))[number::threads]
        each = max(1, left // len(share))
        done, passes = [], plan.tokens
        for index, point in share:
            state = s.fork(1)[0]
            solo(state, settings, fill(texts.point, {**values, "point": point}, 0))
            written = run.generate(state, "", each, "point", index)
            run.add(number, written, passes, number=len(done) + 2, kind="step")
            passes += written.tokens
            done.append((index, written))
        return done

    shares = at_once(range(threads), thread)
    parts = [written for _, written in sorted(pair for share in shares for pair in share)]
    longest = max(sum(written.tokens for _, written in share) for share in shares)

    headings = tuple(f"{i}. {point}" for i, point in enumerate(points, 1))
    joined = join_texts(settings, headings, [part.text for part in parts])
    solo(s, settings, fill(texts.merge, {**values, "parts": joined}, 0))
    before = plan.tokens + longest
    merge = run.generate(s, "", max(1, min(quarter, settings.budget - before)), "merge")
    run.add(0, merge, before, number=None, kind="step")
    run.passes = before + merge.tokens
    calls = [plan, *parts, merge]
    run.prompt_tokens = sum(call.prompt_tokens for call in calls)
    run.kv_tokens = max(
        plan.prompt_tokens + plan.tokens,
        sum(part.prompt_tokens + part.tokens for part in parts),
        merge.prompt_tokens + merge.tokens,
    )
    answer, final_text = run.written(merge.text), merge.text
    if answer is None:
        finisher = run.finish(s, merge.text, "finisher")
        run.add(None, finisher, run.passes, number=None, kind="reader")
        run.finisher_passes = finisher.tokens
        answer, final_text = run.finished(finisher), finisher.text
    return run.result(answer, final_text, options=(*COMMON, "points", "threads"), plan=points)


PROGRAM = Program(
    name="skeleton_of_thought",
    function=skeleton_of_thought,
    about="A plan, its parts side by side, a merge (baseline).",
    options=("points", "threads"),
)

if __name__ == "__main__":
    from programs.cli import main

    main(PROGRAM)
