"""A bug to be planted for an experiment, never in use: workers that are blind to live steps.

With HOGWILD_PLANTED_BUG=blind the server's ``combined`` layout leaves out what the other
workers are writing. Whatever an experiment shows of collaboration must then go away; if it
does not, it did not come from concurrent attention.
"""

from __future__ import annotations

import logging
import os

from runtime_patch.attention import layouts
from runtime_patch.attention.views import Part

ENV = "HOGWILD_PLANTED_BUG"
BLIND = "blind"

logger = logging.getLogger(__name__)


def plant() -> None:
    """Plant the bug that the environment asks for, if any. ValueError if there is no such."""
    asked = os.environ.get(ENV)
    if not asked:
        return
    if asked != BLIND:
        raise ValueError(f"{ENV} is {BLIND!r} or not set, got {asked!r}")
    logger.warning("hogwild: %s=%s, workers do not see each other's live steps", ENV, BLIND)
    layouts.LAYOUTS["combined"] = _blind


def _blind(state: layouts.ViewState, worker: int) -> list[Part]:
    return [*layouts.outside_view(state), state.header_others, state.header_own]
