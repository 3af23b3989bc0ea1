"""Alice and Bob solve a problem at the same time, each reading the other's unfinished step.

python -m programs.alice_bob "How many primes are there below 30?"
"""

from __future__ import annotations

import sglang as sgl

from hogwild_sgl.program.program import TEAM, Program, Watch
from hogwild_sgl.program.settings import Settings
from hogwild_sgl.programs.collaborate import collaborate
from hogwild_sgl.transcript import Result


@sgl.function
def alice_bob(s, problem: str, settings: Settings, watch: Watch | None = None) -> Result:
    if settings.workers != 2:
        raise ValueError(f"alice_bob has two workers, not {settings.workers}; use team")
    return collaborate(s, "alice_bob", problem, settings, watch)


PROGRAM = Program(
    name="alice_bob",
    function=alice_bob,
    about="Alice and Bob solve a problem together, writing at the same time.",
    options=TEAM,
    team=True,
)

if __name__ == "__main__":
    from hogwild_sgl.program.command import main

    main(PROGRAM)
