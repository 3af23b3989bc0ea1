"""What the programs with a team have in common: reason together, then finish."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import sglang as sgl

import hogwild_sgl as hogwild
from hogwild_sgl import prompts
from hogwild_sgl.driver.commands import ConflictRule
from hogwild_sgl.driver.stops import finished_answer, stop_rule
from hogwild_sgl.program.program import COMMON, TEAM, Watch
from hogwild_sgl.program.settings import Settings
from hogwild_sgl.transcript import Result

if TYPE_CHECKING:
    from sglang.lang.interpreter import ProgramState

    from hogwild_sgl.lang.team import Team


def collaborate(
    s: ProgramState,
    program: str,
    problem: str,
    settings: Settings,
    watch: Watch | None,
    *,
    conflict: ConflictRule | None = None,
    hints: tuple[tuple[int, str], ...] = (),
    opened: Callable[[Team], None] = lambda team: None,
) -> Result:
    """Opens a team, lets it reason, and reads the answer.

    opened: called with the team before it begins.

    An answer in a finished step is the team's answer; without one a finisher reads what
    all have written and are writing.
    """
    formatting, names = settings.formatting, settings.worker_names
    s += prompts.collaboration(problem, names, formatting)
    with hogwild.fork(
        s,
        workers=names,
        layout=settings.layout,
        formatting=formatting,
        seed=settings.seed,
        idle_timeout=settings.idle_timeout,
    ) as team:
        if watch is not None:
            team.on_event(watch)
        opened(team)
        if settings.check_every:
            team.check(every=settings.check_every, who=settings.check_who)
        outcome = team.reason(
            settings.budget,
            stop=stop_rule(formatting) if settings.early_stop else None,
            step_tokens=settings.step_tokens,
            probes=settings.probes,
            probe_tokens=settings.finisher_tokens,
            hints=hints,
            conflict=conflict,
            max_retries=settings.max_retries,
        )
        answer, final_text = outcome.answer, ""
        if answer is None:
            final_text = _finish(s, team, settings)
            answer = finished_answer(formatting, formatting.finish_text(), final_text)
        return team.result(
            program,
            problem,
            answer=answer,
            final_text=final_text,
            settings=settings.to_dict(*COMMON, *TEAM, "hints", "max_retries"),
        )


def _finish(s: ProgramState, team: Team, settings: Settings) -> str:
    """What the finisher writes."""
    stop = list(settings.formatting.finisher_stop)
    s += team.finish() + sgl.gen("answer", max_tokens=settings.finisher_tokens, stop=stop)
    s.sync()
    if s.error() is not None:
        raise s.error()
    return s["answer"]
