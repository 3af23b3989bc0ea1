"""Hogwild! inference for SGLang, as a program imports it: ``import hogwild_sgl as hogwild``.

Names are loaded when they are used: the command line and the server need not wait for
SGLang's frontend.
"""

from __future__ import annotations

import importlib
from typing import Any

_HOME = {
    "Client": "hogwild_sgl.client.client",
    "Endpoint": "hogwild_sgl.lang.endpoint",
    "Formatting": "hogwild_sgl.prompts.formatting",
    "Result": "hogwild_sgl.transcript",
    "Team": "hogwild_sgl.lang.team",
    "append_result": "hogwild_sgl.transcript",
    "boxed_answer": "hogwild_sgl.driver.stops",
    "code_answer": "hogwild_sgl.driver.stops",
    "fork": "hogwild_sgl.lang.team",
    "load_formatting": "hogwild_sgl.prompts.formatting",
    "load_results": "hogwild_sgl.transcript",
}
__all__ = sorted([*_HOME, "prompts"])


def __getattr__(name: str) -> Any:
    if name == "prompts":
        return importlib.import_module("hogwild_sgl.prompts")
    if name in _HOME:
        return getattr(importlib.import_module(_HOME[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
