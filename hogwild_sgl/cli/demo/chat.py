"""The demo with a chat model: Alice and Bob talk about an open question."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from hogwild_sgl.cli.console import out

if TYPE_CHECKING:
    from hogwild_sgl.cli.demo.command import Request

PROBLEM = "What can two children do at home on a rainy day?"
# The demo model has 135 million parameters: a long briefing confuses it and sums are beyond
# it, so the built-in problem comes with a few plain words and short steps.
WORDS = {
    "name": "demo-en",
    "system": "{{names}} are friends who plan together. They take turns and write short "
    "sentences. Each sentence names one new thing that nobody has named before.",
    "user": "{{problem}}",
    "preamble": "Here are our ideas, one each time.",
    "header_others": "",
    "header_own": "",
    "examples": "",
    "openers": (),
    "finisher": "\n\n**Summary:** Together we found these ideas:",
}
SAMPLING = {
    "temperature": 0.5,
    "frequency_penalty": 0.8,
    "step_tokens": 40,
    "check_every": 0,
    "finisher_tokens": 60,
}
BUDGET = 160


def play(request: Request, url: str) -> None:
    """Two or more workers, the built-in question or the one that was given."""
    from hogwild_sgl import programs, prompts
    from hogwild_sgl.program.command import summary
    from hogwild_sgl.program.display import Columns
    from hogwild_sgl.program.settings import Settings

    common = {
        "budget": request.budget or BUDGET,
        "seed": request.seed,
        "workers": request.workers,
    }
    if request.problem is None:
        formatting = replace(prompts.formatting("open"), **WORDS)
        settings = Settings(formatting=formatting, **SAMPLING, **common)
    else:
        settings = Settings(**common)
    problem = request.problem or PROBLEM
    out.print(f"[bold]Problem:[/] {problem}", highlight=False)
    with Columns(settings.worker_names, out) as columns:
        result = programs.find("team").solve(problem, settings, url=url, watch=columns)
    summary(result, out)
