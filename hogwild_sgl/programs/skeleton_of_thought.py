"""Baseline: a plan, its parts worked out side by side, and a merge.

The plan and the merge may use a quarter of the budget each, and the parts what is left:
all of it for each part if all run at once, or shared among the parts that one of
``--threads`` threads works on in turn.

    python -m programs.skeleton_of_thought "Compare heat pumps and gas." --threads 2
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

import sglang as sgl

from hogwild_sgl import prompts
from hogwild_sgl.program.program import COMMON, Program, Watch
from hogwild_sgl.program.settings import Settings
from hogwild_sgl.programs.baseline import Run, Written, at_once, solo
from hogwild_sgl.programs.self_consistency import join_texts
from hogwild_sgl.prompts.templates import fill
from hogwild_sgl.transcript import Result

if TYPE_CHECKING:
    from sglang.lang.interpreter import ProgramState

POINT = re.compile(r"^\s*(?:\d+\s*[.)、:]|[-*•])\s*(.+?)\s*$", re.MULTILINE)


def points_of(plan: str, most: int) -> list[str]:
    """The points of a plan, one per numbered line; the whole plan if it has no list."""
    found = [match.strip("* ") for match in POINT.findall(plan)]
    return [point for point in found if point][:most] or [plan.strip() or "?"]


@dataclass(frozen=True)
class Part:
    """One point, worked out by one thread."""

    index: int
    thread: int
    written: Written


@sgl.function
def skeleton_of_thought(s, problem: str, settings: Settings, watch: Watch | None = None) -> Result:
    texts = prompts.texts(settings.formatting.language)
    values = {"problem": problem, "count": str(settings.points)}
    quarter = max(1, settings.budget // 4)
    with Run("skeleton_of_thought", problem, settings, ("thread 1",)) as run:
        planner = run.branch(s)[0]
        solo(planner, settings, fill(texts.plan, values, 0))
        plan = run.generate(planner, "", quarter, "plan")
        run.add(0, plan, 0, number=1, kind="step", name="plan")
        run.passes = plan.tokens
        points = points_of(plan.text, settings.points)
        headings = tuple(f"{i}. {point}" for i, point in enumerate(points, 1))

        left = max(1, settings.budget - plan.tokens - quarter)
        parts = _work_out(run, s, points, {**values, "plan": "\n".join(headings)}, left)

        joined = join_texts(settings, headings, [part.written.text for part in parts])
        solo(s, settings, fill(texts.merge, {**values, "parts": joined}, 0))
        merge = run.generate(s, "", max(1, min(quarter, settings.budget - run.passes)), "merge")
        run.add(0, merge, run.passes, number=None, kind="step", name="merge")
        run.passes += merge.tokens

        calls = [plan, *(part.written for part in parts), merge]
        run.prompt_tokens = sum(call.prompt_tokens for call in calls)
        run.kv_tokens = max(_held(plan), sum(_held(part.written) for part in parts), _held(merge))
        answer, final_text = run.written(merge.text), merge.text
        if answer is None:
            finisher = run.finish(s, merge.text, "finisher")
            run.add(None, finisher, run.passes, number=None, kind="reader")
            run.finisher_passes = finisher.tokens
            answer, final_text = run.finished(finisher), finisher.text
        return run.result(answer, final_text, options=(*COMMON, "points", "threads"), plan=points)


def _work_out(
    run: Run, s: ProgramState, points: list[str], values: dict[str, str], left: int
) -> list[Part]:
    """All points, in their order; each thread works on every so manieth in turn.

    left: passes that a thread may use.
    """
    settings = run.settings
    text = prompts.texts(settings.formatting.language).point
    threads = min(settings.threads or len(points), len(points))
    run.names = tuple(f"thread {i + 1}" for i in range(threads))
    before = run.passes

    def work(thread: int) -> list[Part]:
        share = list(enumerate(points))[thread::threads]
        done: list[Part] = []
        passes = before
        for index, point in share:
            state = run.branch(s)[0]
            solo(state, settings, fill(text, {**values, "point": point}, 0))
            written = run.generate(state, "", max(1, left // len(share)), "point", index)
            name = f"part {index + 1} ({run.names[thread]})"
            run.add(thread, written, passes, number=len(done) + 2, kind="step", name=name)
            passes += written.tokens
            done.append(Part(index, thread, written))
        return done

    shares = at_once(range(threads), work)
    run.passes += max(sum(part.written.tokens for part in share) for share in shares)
    return sorted((part for share in shares for part in share), key=lambda part: part.index)


def _held(call: Written) -> int:
    return call.prompt_tokens + call.tokens


PROGRAM = Program(
    name="skeleton_of_thought",
    function=skeleton_of_thought,
    about="A plan, its parts side by side, a merge (baseline).",
    options=("points", "threads"),
)

if __name__ == "__main__":
    from hogwild_sgl.program.command import main

    main(PROGRAM)
