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


@dataclass(frozen=True)
class Run:
    """logits: float32 ``[rows, vocabulary]`` of each forward.

    whole: is the decoder one call? linear: the class that serves the linear layers.
    """

    logits: list[np.ndarray]
    whole: bool
    linear: str

    def error(self, other: Run) -> float:
        """Root of the mean square of the logits' differences."""
        pairs = zip(self.logits, other.logits, strict=True)
        return float(np.sqrt(np.mean([np.square(a - b).mean() for a, b in pairs])))

    def equals(self, other: Run) -> bool:
        pairs = zip(self.logits, other.logits, strict=True)
        return all(np.array_equal(a, b) for a, b in pairs)


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
    context.set_forkserver_preload(["sglang.srt.managers.scheduler", "runtime_patch.forced"])
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
    from runtime_patch.cpu.decoder import WholeDecoder
    from runtime_patch.forced import ForcedTeam
    from runtime_patch.teams import Kind

    draw = random.Random(7)

    def tokens(count: int) -> list[int]:
        return [draw.randrange(VOCABULARY) for _ in range(count)]

    team = ForcedTeam(folder, WORKERS, "combined", False, dtype)
    team.store(Kind.PROMPT, tokens(40))
    team.store(Kind.HEADER_OTHERS, tokens(5))
    team.store(Kind.HEADER_OWN, tokens(4))
    logits = []
    for number in range(24):
        if meddle and number == 12:
            meddle(team.model)
        workers = sorted(draw.sample(range(WORKERS), draw.randint(1, WORKERS)))
        fed = [tokens(draw.choice([1, 1, 1, 2, 9])) for _ in workers]
        logits.append(team.forward(workers, fed))
        if number % 5 == 4:
            team.publish(workers[0])
    assert team.close() == 0
    decoder = team.model.model
    linear = type(decoder.layers[0].mlp.down_proj.quant_method).__name__
    sender.send(Run(logits, isinstance(decoder.forward, WholeDecoder), linear))
