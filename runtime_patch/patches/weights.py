"""Patches of SGLang's weight updates and of giving back KV memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from runtime_patch.patches.access import teams_of
from runtime_patch.patches.base import Patch

MANAGER = "sglang.srt.managers.scheduler_components.weight_updater.SchedulerWeightUpdaterManager"


class WeightPatch(Patch):
    """Closes all teams before the weights change or the KV memory is given back.

    Why: a team's KV was computed with the old weights (or is about to be freed); going
    on with it would mix two models in one view. The teams' clients see ``closed`` with
    the reason ``weights``."""

    parameters = ("self", "recv_req")

    def around(self, original: Callable, manager: Any, recv_req: Any) -> Any:
        teams = teams_of(manager.scheduler)
        if teams is not None:
            teams.commands.close_all("weights")
        return original(manager, recv_req)


def _patch(function: str) -> WeightPatch:
    target = f"{MANAGER}.{function}"
    return type(f"WeightPatch_{function}", (WeightPatch,), {"target": target})()


WEIGHT_PATCHES = tuple(
    _patch(function)
    for function in (
        "update_weights_from_disk",
        "update_weights_from_distributed",
        "update_weights_from_tensor",
        "update_weights_from_ipc",
        "begin_weight_update",
        "release_memory_occupation",
    )
)
