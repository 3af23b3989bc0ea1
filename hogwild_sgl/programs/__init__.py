"""Programs: ways to solve a problem with one model, in SGLang's frontend language.

All are run alike and return the same kind of result:

    from hogwild_sgl import programs
    from hogwild_sgl.program.settings import Settings

    program = programs.find("alice_bob")
    result = program.solve("What is 6 * 7?", Settings(budget=512), url=URL)

From the command line: ``python -m programs.alice_bob "What is 6 * 7?"``.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hogwild_sgl.program.program import Program

NAMES = (
    "alice_bob",
    "team",
    "hint",
    "retry",
    "single",
    "self_consistency",
    "skeleton_of_thought",
    "text_rounds",
)


def find(name: str) -> Program:
    """The program of that name. ValueError lists the names there are."""
    if name not in NAMES:
        raise ValueError(f"no program {name!r}; there are {list(NAMES)}")
    return importlib.import_module(f"hogwild_sgl.programs.{name}").PROGRAM
