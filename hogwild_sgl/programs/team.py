"""A team of 2 to 16 workers solves a problem.

python -m programs.team "How many primes are there below 30?" --workers 4
"""

from __future__ import annotations

import sglang as sgl

from hogwild_sgl.program.program import TEAM, Program, Watch
from hogwild_sgl.program.settings import Settings
from hogwild_sgl.programs.collaborate import collaborate
from hogwild_sgl.transcript import Result


@sgl.function
def team(s, problem: str, settings: Settings, watch: Watch | None = None) -> Result:
    return collaborate(s, "team", problem, settings, watch)


PROGRAM = Program(
    name="team",
    function=team,
    about="A team of 2 to 16 workers solves a problem together.",
    options=("workers", "names", *TEAM),
    team=True,
)

if __name__ == "__main__":
    from hogwild_sgl.program.command import main

    main(PROGRAM)
