"""A short life of a team, forced, in a process of its own: logits, and what the model became."""

from __future__ import annotations

import multiprocessing
import os
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

VOCABULARY = 200  # token ids used; every tiny model has more
WORKERS = 3
FORWARDS = 24


@dataclass(frozen=True)
class Run:
    """logits: float32 ``[rows, vocabulary]`` of each forward.

    linear: the class that serves the linear layers.
    whole: forwards that the decoder did in one call; of them, equal: those that came out
        the same, bit for bit, layer by layer.
    """

    logits: list[np.ndarray]
    linear: str
    whole: int
    equal: int

    def error(self, other: Run) -> float:
        """Root of the mean square of the logits' differences."""
        pairs = zip(self.logits, other.logits, strict=True)
        return float(np.sqrt(np.mean([np.square(a - b).mean() for a, b in pairs])))


def run(
    folder: Path,
    way: str,
    dtype: str = "float32",
    environment: Mapping[str, str] | None = None,
    meddle: Callable[[torch.nn.Module], None] | None = None,
) -> Run:
    """The same forwards for every way. meddle: called with the model half-way."""
    environment = {"HOGWILD_CPU_FORWARD": way, **(environment or {})}
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(
        ["sglang.srt.managers.scheduler", "runtime_patch.debug.replay_engine"]
    )
    receiver, sender = context.Pipe(duplex=False)
    child = context.Process(
        target=_child, args=(folder, dtype, environment, meddle, sender), daemon=True
    )
    child.start()
    sender.close()
    try:
        return receiver.recv()
    finally:
        child.join()


def _child(folder, dtype, environment, meddle, sender) -> None:
    os.environ.update(environment)
    from runtime_patch.debug.replay_engine import ReplayTeam
    from runtime_patch.team_request import Kind

    draw = random.Random(7)

    def tokens(count: int) -> list[int]:
        return [draw.randrange(VOCABULARY) for _ in range(count)]

    team = ReplayTeam(folder, WORKERS, "combined", False, dtype)
    whole = _compare_both_ways(team.model.model)
    team.store(Kind.PROMPT, tokens(40))
    team.store(Kind.HEADER_OTHERS, tokens(5))
    team.store(Kind.HEADER_OWN, tokens(4))
    logits = []
    for number in range(FORWARDS):
        if meddle and number == FORWARDS // 2:
            meddle(team.model)
        workers = sorted(draw.sample(range(WORKERS), draw.randint(1, WORKERS)))
        fed = [tokens(draw.choice([1, 1, 1, 2, 9])) for _ in workers]
        logits.append(team.forward(workers, fed))
        if number % 5 == 4:
            team.publish(workers[0])
    assert team.close() == 0
    linear = type(team.model.model.layers[0].mlp.down_proj.quant_method).__name__
    sender.send(Run(logits, linear, len(whole), sum(whole)))


def _compare_both_ways(decoder: torch.nn.Module) -> list[bool]:
    """Let every forward go layer by layer first, and then in one call where it can.

    Both store the same keys and values. Returns the list to which it adds whether the two
    agree; it stays empty where nothing is done in one call."""
    from runtime_patch.cpu.decoder import WholeDecoder
    from runtime_patch.cpu.ops import Ops

    whole, decode = decoder.forward, Ops.decode
    agree: list[bool] = []
    calls = 0
    if not isinstance(whole, WholeDecoder):
        return agree

    def counted(*args):
        nonlocal calls
        calls += 1
        decode(*args)

    def both(*args, **named):
        layered, before = type(decoder).forward(decoder, *args, **named), calls
        result = whole(*args, **named)
        if calls > before:
            agree.append(torch.equal(result, layered))
        return result

    Ops.decode, decoder.forward = counted, both
    return agree
