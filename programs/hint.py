"""A team works on a problem, and a person says something in the middle of it.

    python -m programs.hint "Is 2**61 - 1 a prime?" --hint "200:Look for a Mersenne prime."

Every worker reads the hint from the forward pass on in which it is published.
"""

from __future__ import annotations

import sglang as sgl

from hogwild_sgl.transcript import Result
from programs.collaborate import collaborate
from programs.program import TEAM, Program, Watch
from programs.settings import Settings


@sgl.function
def hint(s, problem: str, settings: Settings, watch: Watch | None = None) -> Result:
    if not settings.hints:
        raise ValueError("no hint was given; give one or more as PASSES:TEXT")
    return collaborate(s, "hint", problem, settings, watch, hints=settings.hints)


PROGRAM = Program(
    name="hint",
    function=hint,
    about="A team solves a problem, and is told something in the middle of it.",
    options=("hints", "workers", "names", *TEAM),
    team=True,
)

if __name__ == "__main__":
    from programs.cli import main

    main(PROGRAM)
