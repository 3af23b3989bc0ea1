"""A team works through a list of sums, for the model that was trained to.

The workers choose for themselves: each takes a sum that nobody has done or is doing. One
worker alone does all of them. See docs/worklist.md.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import sglang as sgl

import hogwild_sgl as hogwild
from hogwild_sgl import prompts
from hogwild_sgl.driver.commands import FinishedStep
from hogwild_sgl.program.program import TEAM, Program, Watch
from hogwild_sgl.program.settings import Settings
from hogwild_sgl.transcript import Result
from hogwild_sgl.worklist import words
from hogwild_sgl.worklist.format import last_line

if TYPE_CHECKING:
    from hogwild_sgl.lang.team import Team

STEP_TOKENS = 48  # a line has at most 25


@sgl.function
def worklist(s, problem: str, settings: Settings, watch: Watch | None = None) -> Result:
    formatting = settings.formatting
    # A team has at least two workers; a lone one's colleague never writes.
    names = settings.worker_names
    names = names if len(names) > 1 else prompts.WORKER_NAMES[:2]
    s += prompts.collaboration(problem, names, formatting)
    with hogwild.fork(
        s, names, layout=settings.layout, formatting=formatting, seed=settings.seed
    ) as team:
        if watch is not None:
            team.on_event(watch)
        if settings.workers == 1:
            answer = _alone(team, settings.budget)
        else:
            if settings.check_every:
                team.check(every=settings.check_every, who=settings.check_who)
            outcome = team.reason(settings.budget, stop=last_line, step_tokens=STEP_TOKENS)
            answer = outcome.answer
        return team.result(
            "worklist",
            problem,
            answer=answer,
            final_text="",
            settings=settings.to_dict("temperature", "workers", "layout", "check_every"),
        )


def _alone(team: Team, budget: int) -> str | None:
    """The first worker writes step after step; every token is a pass."""
    worker, text = team[0], words.BREAK
    for number in range(1, words.MAX_STEPS + 1):
        name = f"step_{number}"
        worker += text + words.header(team.names[0], number)
        worker += sgl.gen(name, max_tokens=STEP_TOKENS)
        written = worker[name]
        if answer := last_line(FinishedStep(0, team.names[0], number, "", written, 0, "")):
            return answer
        if team.recorder.passes >= budget:
            return None
        # What ended by the rule leaves its blank line for the next step.
        text = "" if team.core.links[0].separated else words.BREAK
    return None


PROGRAM = Program(
    name="worklist",
    function=worklist,
    about="A team works through a list of sums (for the worklist model).",
    options=("workers", "names", *TEAM),
    team=True,
)
