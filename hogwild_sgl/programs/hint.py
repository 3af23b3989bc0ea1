"""A team works on a problem, and a person says something in the middle of it.

    python -m programs.hint "Is 2**61 - 1 a prime?" --hint "200:Look for a Mersenne prime."

With ``--listen`` each line typed is said as it comes. Every worker reads a hint from the
forward pass on in which it is published.
"""

from __future__ import annotations

import sys
import threading
from typing import TYPE_CHECKING

import sglang as sgl

from hogwild_sgl.errors import ServerGone, TeamClosed
from hogwild_sgl.program.program import TEAM, Program, Watch
from hogwild_sgl.program.settings import Settings
from hogwild_sgl.programs.collaborate import collaborate
from hogwild_sgl.transcript import Result

if TYPE_CHECKING:
    from hogwild_sgl.lang.team import Team


def say_what_is_typed(team: Team) -> None:
    """Says every line of standard input to the team, until one of them ends."""

    def listen() -> None:
        for line in sys.stdin:
            try:
                if line.strip():
                    team.say(line.strip())
            except (TeamClosed, ServerGone):
                return

    threading.Thread(target=listen, daemon=True).start()


@sgl.function
def hint(s, problem: str, settings: Settings, watch: Watch | None = None) -> Result:
    if not settings.hints and not settings.listen:
        raise ValueError("no hint was given; give one or more as PASSES:TEXT, or listen for them")
    opened = say_what_is_typed if settings.listen else lambda team: None
    return collaborate(s, "hint", problem, settings, watch, hints=settings.hints, opened=opened)


PROGRAM = Program(
    name="hint",
    function=hint,
    about="A team solves a problem, and is told something in the middle of it.",
    options=("hints", "listen", "workers", "names", *TEAM),
    team=True,
)

if __name__ == "__main__":
    from hogwild_sgl.program.command import main

    main(PROGRAM)
