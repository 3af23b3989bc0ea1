"""Patch of flushing the cache."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from runtime_patch.patches.access import SCHEDULER, teams_of
from runtime_patch.patches.base import Patch

logger = logging.getLogger(__name__)


class FlushPatch(Patch):
    """Refuses ``/flush_cache`` while teams are open.

    Why: a flush frees the whole pool, and an open team holds KV that it is going to
    read. Like SGLang's refusal while requests run. Weight updates close the teams first
    (patches/weights.py)."""

    target = f"{SCHEDULER}.flush_cache"
    parameters = ("self", "empty_cache")
    relies_on = ("self.tree_cache.reset()",)

    def around(self, original: Callable, scheduler: Any, empty_cache: bool = True) -> bool:
        teams = teams_of(scheduler)
        if teams is not None and teams.store.teams:
            logger.warning(
                "Cache not flushed because %d teams are open: %s. Close them first.",
                len(teams.store.teams),
                ", ".join(teams.store.teams),
            )
            return False
        return original(scheduler, empty_cache=empty_cache)
