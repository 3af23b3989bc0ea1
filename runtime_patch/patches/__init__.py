"""Every place where SGLang is touched, one patch each.

``PATCHES`` is the whole list; ``apply`` registers them with SGLang's hook registry.
"""

from __future__ import annotations

from runtime_patch.patches.base import Patch
from runtime_patch.patches.lockstep import HoldPatch, PlanPatch
from runtime_patch.patches.output import AbortPatch
from runtime_patch.patches.sampling import DrawPatch, FilterPatch, SeedPatch
from runtime_patch.patches.scheduler import (
    DispatcherPatch,
    FlushPatch,
    IdlePatch,
    ParkedAbortPatch,
    QueuePatch,
    RequestClassPatch,
    SettlePatch,
)
from runtime_patch.patches.tokenizer import TokenizerPatch
from runtime_patch.patches.weights import WEIGHT_PATCHES

PATCHES: tuple[Patch, ...] = (
    RequestClassPatch(),
    DispatcherPatch(),
    SettlePatch(),
    HoldPatch(),
    PlanPatch(),
    AbortPatch(),
    QueuePatch(),
    ParkedAbortPatch(),
    IdlePatch(),
    FlushPatch(),
    SeedPatch(),
    DrawPatch(),
    FilterPatch(),
    TokenizerPatch(),
    *WEIGHT_PATCHES,
)


def apply() -> None:
    for patch in PATCHES:
        patch.register()
