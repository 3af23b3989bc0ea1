"""Hogwild! inference for SGLang, as a program imports it: ``import hogwild_sgl as hogwild``.

Names are loaded when they are used: the command line and the server need not wait for
SGLang's frontend.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hogwild_sgl import prompts as prompts
    from hogwild_sgl.answers import equal as equal
    from hogwild_sgl.answers import extract_answer as extract_answer
    from hogwild_sgl.client import Client as Client
    from hogwild_sgl.driver.commands import CheckRule as CheckRule
    from hogwild_sgl.driver.commands import FinishedStep as FinishedStep
    from hogwild_sgl.driver.stops import boxed_answer as boxed_answer
    from hogwild_sgl.driver.stops import code_answer as code_answer
    from hogwild_sgl.driver.stops import finished_answer as finished_answer
    from hogwild_sgl.errors import BadRequest as BadRequest
    from hogwild_sgl.errors import HogwildError as HogwildError
    from hogwild_sgl.errors import OutOfMemory as OutOfMemory
    from hogwild_sgl.errors import PatchNotActive as PatchNotActive
    from hogwild_sgl.errors import ProtocolError as ProtocolError
    from hogwild_sgl.errors import ServerGone as ServerGone
    from hogwild_sgl.errors import StepConflict as StepConflict
    from hogwild_sgl.errors import StepDropped as StepDropped
    from hogwild_sgl.errors import StepNotBegun as StepNotBegun
    from hogwild_sgl.errors import TeamClosed as TeamClosed
    from hogwild_sgl.errors import UnknownTeam as UnknownTeam
    from hogwild_sgl.errors import UserError as UserError
    from hogwild_sgl.lang.endpoint import Endpoint as Endpoint
    from hogwild_sgl.lang.endpoint import set_seed as set_seed
    from hogwild_sgl.lang.loop import Outcome as Outcome
    from hogwild_sgl.lang.team import Team as Team
    from hogwild_sgl.lang.team import fork as fork
    from hogwild_sgl.prompts.formatting import Formatting as Formatting
    from hogwild_sgl.prompts.formatting import load_formatting as load_formatting
    from hogwild_sgl.transcript import Result as Result
    from hogwild_sgl.transcript import append_result as append_result
    from hogwild_sgl.transcript import load_results as load_results
    from hogwild_sgl.transcript import save_results as save_results

# Module of hogwild_sgl: the names that it gives.
_EXPORTS = {
    "answers": ("equal", "extract_answer"),
    "client": ("Client",),
    "driver.commands": ("CheckRule", "FinishedStep"),
    "driver.stops": ("boxed_answer", "code_answer", "finished_answer"),
    "errors": (
        "BadRequest",
        "HogwildError",
        "OutOfMemory",
        "PatchNotActive",
        "ProtocolError",
        "ServerGone",
        "StepConflict",
        "StepDropped",
        "StepNotBegun",
        "TeamClosed",
        "UnknownTeam",
        "UserError",
    ),
    "lang.endpoint": ("Endpoint", "set_seed"),
    "lang.loop": ("Outcome",),
    "lang.team": ("Team", "fork"),
    "prompts.formatting": ("Formatting", "load_formatting"),
    "transcript": ("Result", "append_result", "load_results", "save_results"),
}
_HOME = {name: module for module, names in _EXPORTS.items() for name in names}
__all__ = sorted([*_HOME, "__version__", "prompts"])


def __getattr__(name: str) -> Any:
    if name == "prompts":
        return importlib.import_module("hogwild_sgl.prompts")
    if name == "__version__":
        from importlib.metadata import version

        return version("hogwild-sgl")
    if name in _HOME:
        return getattr(importlib.import_module(f"hogwild_sgl.{_HOME[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
