"""Every place where SGLang is touched, one patch each.

``PATCHES`` is the whole list; ``apply`` registers them with SGLang's hook registry.
"""

from __future__ import annotations

from runtime_patch.patches.abort_output import AbortOutputPatch
from runtime_patch.patches.base import Patch
from runtime_patch.patches.dispatcher import DispatcherPatch
from runtime_patch.patches.finish_forward import FinishForwardPatch
from runtime_patch.patches.flush import FlushPatch
from runtime_patch.patches.idle import IdlePatch
from runtime_patch.patches.lockstep import HoldPatch, PlanPatch
from runtime_patch.patches.queue import AbortRequestPatch, QueuePatch
from runtime_patch.patches.request_class import RequestClassPatch
from runtime_patch.patches.sampling import DrawPatch, FilterPatch, SeedPatch
from runtime_patch.patches.tokenizer import TokenizerPatch
from runtime_patch.patches.weights import WEIGHT_PATCHES

# In the order in which a request meets them.
PATCHES: tuple[Patch, ...] = (
    TokenizerPatch(),
    DispatcherPatch(),
    RequestClassPatch(),
    QueuePatch(),
    HoldPatch(),
    PlanPatch(),
    SeedPatch(),
    FilterPatch(),
    DrawPatch(),
    FinishForwardPatch(),
    AbortRequestPatch(),
    AbortOutputPatch(),
    IdlePatch(),
    FlushPatch(),
    *WEIGHT_PATCHES,
)


def apply() -> None:
    for patch in PATCHES:
        patch.register()
