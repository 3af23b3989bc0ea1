"""Lockstep: a team's forwards wait for workers whose next step has not come yet.

Over HTTP the next step of a worker can come late: the machine is busy, or the live step was
very short. The others would run on meanwhile, and which forward the late step begins in
would depend on the clock. In lockstep no step of the team has a row in a forward while a
worker of the lockstep has no live step that can run, so that the team's own forwards go the
same way however long a message takes. Other requests, the team's readers and what is said
run on.

A worker leaves the lockstep when it ends its turn, when its view is full, when the forwards
its step was given are used, and when the others have waited ``PATIENCE`` seconds for it.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Any

from runtime_patch.scheduler.team import Team
from runtime_patch.team_request import Kind

logger = logging.getLogger(__name__)

PATIENCE = 10.0


def waits(team: Team, chunking: bool) -> bool:
    """Do the team's running steps sit out the next forward?

    chunking: a long prompt is being prefilled piece by piece; it comes first, so that a
    step that is about to begin may not find room in the next forward.
    """
    fresh = any(team.live[w].forwards == 0 for w in team.lockstep & team.live.keys())
    return not team.together or (chunking and fresh)


def give_up(team: Team, now: float) -> bool:
    """Waits no longer for workers that have been waited for too long.

    now: seconds on the monotonic clock; 0 never gives up. True if some have left the lockstep.
    """
    if team.together or not now:
        team.waiting_since = None
        return False
    if team.waiting_since is None:
        team.waiting_since = now
    if now - team.waiting_since <= PATIENCE:
        return False
    missing = {w for w in team.lockstep if w not in team.live or not team.live[w].grammar_ready}
    logger.warning(
        "hogwild: team %s has waited %.0f s for its workers %s and goes on without them",
        team.name,
        PATIENCE,
        sorted(missing),
    )
    team.lockstep -= missing
    team.waiting_since = None
    return True


def held_rows(reqs: Iterable[Any], waiting: set[str]) -> list[int]:
    """Places in a batch of the steps that sit out. waiting: names of the teams that wait.

    An aborting step runs: it needs a forward to end in.
    """
    return [
        place
        for place, req in enumerate(reqs)
        if getattr(req, "team", None) in waiting and req.kind is Kind.STEP and not req.aborting
    ]
