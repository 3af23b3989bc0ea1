"""What happens to a model on the CPU once its weights are loaded."""

from __future__ import annotations

import logging
import os

import torch
from sglang.srt.runtime_context import get_exec

from runtime_patch.attention.cpp.kernel import instruction_set
from runtime_patch.cpu.decoder import WholeDecoder
from runtime_patch.cpu.families import NotCovered
from runtime_patch.cpu.modules import speed_up
from runtime_patch.cpu.ops import Ops
from runtime_patch.errors import KernelUnavailable

logger = logging.getLogger(__name__)

ENVIRONMENT = "HOGWILD_CPU_FORWARD"
# All layers in one C++ call where the model allows it; operator by operator; PyTorch only.
WAYS = ("decoder", "ops", "torch")


def chosen_way() -> str:
    """What HOGWILD_CPU_FORWARD says. Raises ValueError for a way that does not exist."""
    way = os.environ.get(ENVIRONMENT) or WAYS[0]
    if way not in WAYS:
        raise ValueError(f"{ENVIRONMENT} {way!r} is unknown; one of {', '.join(WAYS)}")
    return way


def start(model: torch.nn.Module) -> None:
    """Speed the model up in the chosen way, as far as this machine can.

    Without a compiler all runs on PyTorch, with one warning."""
    way = chosen_way()
    if way == "torch":
        return
    if get_exec().deterministic.enable_deterministic_inference:
        # PyTorch takes the wide inputs, and sums in another order.
        logger.info("hogwild: deterministic inference, so no operators in C++")
        return
    try:
        ops = Ops(instruction_set())
    except KernelUnavailable as error:
        logger.warning("all but attention runs on PyTorch, which is slower: %s", error)
        return
    speed_up(model, ops)
    if way == "decoder":
        _take_whole(model, ops)


def _take_whole(model: torch.nn.Module, ops: Ops) -> None:
    decoder = getattr(model, "model", None)
    try:
        decoder.forward = WholeDecoder(decoder, ops)
    except NotCovered as reason:
        logger.info("hogwild: decode steps go layer by layer: %s", reason)
