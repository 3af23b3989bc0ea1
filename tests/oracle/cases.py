"""Trace cases: a folder with a model, ``trace.json`` and ``logits.npz``.

``trace.json`` says which tokens were fed in which forward and which steps ended when;
``logits.npz`` holds the logits of each row's last token, one array ``f0``, ``f1``, ...
per forward, float32 ``[workers in it, vocabulary]``.
"""

from __future__ import annotations

import json
import random
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from tests.oracle.decoder import Decoder
from tests.oracle.dense import Row, forward
from tests.oracle.team import Team


def load_trace(folder: Path) -> tuple[dict, dict[str, np.ndarray]]:
    with np.load(folder / "logits.npz") as arrays:
        return json.loads((folder / "trace.json").read_text()), dict(arrays)


def replay(folder: Path, decoder: Decoder | None = None) -> dict[str, np.ndarray]:
    """The oracle's logits for a case, by forcing its fed tokens, in float64."""
    trace, _ = load_trace(folder)
    decoder = decoder or Decoder.load(folder)
    team = _team(decoder, trace["case"], trace)
    logits = {}
    for entry in trace["trace"]:
        fed = zip(entry["workers"], entry["fed"], strict=True)
        logits[f"f{entry['forward']}"] = _forward(decoder, team, list(fed)).numpy()
        for step in entry["finished_steps"]:
            team.publish(step["worker"])
    return logits


def largest_difference(folder: Path, logits: dict[str, np.ndarray]) -> float:
    _, expected = load_trace(folder)
    if logits.keys() != expected.keys():
        raise ValueError(f"{folder}: {len(logits)} forwards computed, {len(expected)} stored")
    return max(float(np.abs(logits[name] - expected[name]).max()) for name in expected)


@dataclass(frozen=True)
class CaseSpec:
    """workers, layout, composition (``mixed``: all workers in every forward; ``separate``:
    rows that feed several tokens go first, in a forward of their own), headers
    (``isolated``, or ``prompt``: prefilled after the prompt)."""

    workers: int
    layout: str
    composition: str = "mixed"
    forwards: int = 40
    prompt: int = 30
    header_others: int = 5
    header_own: int = 7
    headers: str = "isolated"
    seed: int = 0

    def __post_init__(self) -> None:
        if self.composition not in ("mixed", "separate"):
            raise ValueError(f"composition is 'mixed' or 'separate', got {self.composition!r}")
        if self.headers not in ("isolated", "prompt"):
            raise ValueError(f"headers is 'isolated' or 'prompt', got {self.headers!r}")


def write_case(folder: Path, spec: CaseSpec) -> Path:
    """Decode greedily with the oracle on the model that lies in ``folder``, with step
    lengths and opening tokens drawn from the seed, and write the trace beside it."""
    decoder = Decoder.load(folder)
    draw = random.Random(spec.seed)

    def tokens(count: int) -> list[int]:
        return [draw.randrange(decoder.vocabulary) for _ in range(count)]

    texts = {
        "prompt": tokens(spec.prompt),
        "header_others": tokens(spec.header_others),
        "header_own": tokens(spec.header_own),
        "first_inputs": [tokens(draw.randint(1, 5)) for _ in range(spec.workers)],
    }
    team = _team(decoder, vars(spec), texts)
    pending = dict(enumerate(texts["first_inputs"]))
    remaining = {worker: draw.randint(1, 14) for worker in pending}
    steps = dict.fromkeys(pending, 1)
    trace, logits = [], {}
    for number in range(spec.forwards):
        longer = [worker for worker, fed in pending.items() if len(fed) > 1]
        chosen = longer if spec.composition == "separate" and longer else list(pending)
        fed = [pending[worker] for worker in chosen]
        result = _forward(decoder, team, list(zip(chosen, fed, strict=True)))
        following = result.argmax(-1).tolist()
        finished = []
        for worker, token in zip(chosen, following, strict=True):
            pending[worker] = [token]
            remaining[worker] -= 1
            if remaining[worker] <= 0:
                written = [*team.live[worker].tokens, token]
                finished.append({"worker": worker, "step": steps[worker], "tokens": written})
                team.publish(worker)
                steps[worker] += 1
                remaining[worker] = draw.randint(1, 14)
                pending[worker] = [token, *tokens(draw.randint(0, 4))]
        trace.append(
            {
                "forward": number,
                "workers": chosen,
                "fed": fed,
                "next_token": following,
                "finished_steps": finished,
            }
        )
        logits[f"f{number}"] = result.float().numpy()
    document = {"case": vars(spec), **texts, "logits_source": "dense oracle, float64"}
    (folder / "trace.json").write_text(json.dumps({**document, "trace": trace}))
    np.savez(folder / "logits.npz", **logits)
    return folder


def _team(decoder: Decoder, case: dict, texts: dict) -> Team:
    team = Team(decoder, case["workers"], case["layout"])
    team.prefill("prompt", texts["prompt"])
    for part in ("header_others", "header_own"):
        team.prefill(part, texts[part], after_prompt=case.get("headers") == "prompt")
    return team


def _forward(decoder: Decoder, team: Team, fed: list[tuple[int, list[int]]]) -> torch.Tensor:
    """One forward of the given workers; float64 ``[workers, vocabulary]``."""
    for worker, _ in fed:
        if worker not in team.live:
            team.begin(worker)
    rows = [Row(tokens, team.view(worker)) for worker, tokens in fed]
    return torch.stack([logits[-1] for logits in forward(decoder, rows)])
