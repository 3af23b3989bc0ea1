"""Replays reference traces of concurrent attention through SGLang and the hogwild backend.

A case is a folder with a model in Hugging Face format, ``trace.json`` (prompt, headers,
the tokens that each forward feeds for each worker, and when steps are published) and
``logits.npz`` (the logits of each worker's last fed token, one array per forward).
"""

from __future__ import annotations

import json
import multiprocessing
import os
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

TOLERANCE = 2e-4
LOG_TAIL = 20


class BadCase(ValueError):
    """A folder that cannot be replayed; remedy says what to do."""

    def __init__(self, message: str, remedy: str = "") -> None:
        super().__init__(message)
        self.remedy = remedy


@dataclass(frozen=True)
class Case:
    """One reference trace.

    forwards: the trace's entries. logits: float32 ``[rows, vocab]`` for each of them.
    """

    folder: Path
    workers: int
    layout: str
    headers_after_prompt: bool
    prompt: list[int]
    header_others: list[int]
    header_own: list[int]
    forwards: list[dict[str, Any]]
    logits: list[np.ndarray]

    def __post_init__(self) -> None:
        if len(self.forwards) != len(self.logits):
            raise BadCase(
                f"{self.folder}: {len(self.forwards)} forwards, but {len(self.logits)} logits."
            )
        for number, (forward, logits) in enumerate(zip(self.forwards, self.logits, strict=True)):
            rows = len(forward["workers"])
            if not rows == len(forward["fed"]) == len(logits):
                raise BadCase(
                    f"{self.folder}: forward {number} does not have {rows} rows everywhere."
                )


def read_case(folder: Path) -> Case:
    """Raises BadCase for a folder that is not a case."""
    missing = [n for n in ("config.json", "trace.json", "logits.npz") if not (folder / n).exists()]
    if missing:
        raise BadCase(
            f"{folder} is not a reference case: {', '.join(missing)} missing.",
            "A case is a folder with a model, trace.json and logits.npz.",
        )
    try:
        trace = json.loads((folder / "trace.json").read_text())
        with np.load(folder / "logits.npz") as arrays:
            logits = [arrays[f"f{i}"] for i in range(len(trace["trace"]))]
        return Case(
            folder=folder,
            workers=trace["case"]["workers"],
            layout=trace["case"]["layout"],
            headers_after_prompt=trace["case"].get("headers") == "prompt",
            prompt=trace["prompt"],
            header_others=trace["header_others"],
            header_own=trace["header_own"],
            forwards=trace["trace"],
            logits=logits,
        )
    except (KeyError, TypeError, ValueError) as error:
        raise BadCase(
            f"{folder}: trace.json or logits.npz is not as expected: {error!r}"
        ) from error


def replay_case(folder: Path | str) -> float:
    """The largest absolute difference between the engine's logits and the case's.

    Runs in a process of its own, since SGLang's state is one per process. Raises BadCase
    if the case cannot be read or the engine fails on it."""
    case = read_case(Path(folder))
    context = multiprocessing.get_context("forkserver")
    # Imported once in the fork server; each case then starts in a second or two.
    context.set_forkserver_preload(
        ["sglang.srt.managers.scheduler", "runtime_patch.debug.replay_engine"]
    )
    receiver, sender = context.Pipe(duplex=False)
    with tempfile.NamedTemporaryFile("r", suffix=".log") as log:
        child = context.Process(target=_replay_in_child, args=(case, sender, log.name), daemon=True)
        child.start()
        sender.close()
        try:
            outcome = receiver.recv()
        except EOFError:
            outcome = "the engine died"
        finally:
            receiver.close()
        child.join()
        if isinstance(outcome, str):
            said = "\n".join(log.read().splitlines()[-LOG_TAIL:])
            raise BadCase(f"{case.folder}: {outcome} (exit status {child.exitcode})", said)
    return outcome


def _replay_in_child(case: Case, sender: Any, log: str) -> None:
    # SGLang warns and shows progress while it loads a model; keep that for a failure.
    with open(log, "w") as quiet:
        os.dup2(quiet.fileno(), 1)
        os.dup2(quiet.fileno(), 2)
    try:
        sender.send(_replay(case))
    except BaseException as error:
        sender.send(f"{type(error).__name__}: {error}")
        raise
    finally:
        sender.close()


def _replay(case: Case) -> float:
    from runtime_patch.debug.replay_engine import ReplayTeam
    from runtime_patch.team_request import Kind

    team = ReplayTeam(case.folder, case.workers, case.layout, case.headers_after_prompt)
    team.store(Kind.PROMPT, case.prompt)
    before = case.prompt if case.headers_after_prompt else []
    for kind, header in (
        (Kind.HEADER_OTHERS, case.header_others),
        (Kind.HEADER_OWN, case.header_own),
    ):
        if header:
            team.store(kind, [*before, *header])
    worst = 0.0
    for forward, expected in zip(case.forwards, case.logits, strict=True):
        logits = team.forward(forward["workers"], forward["fed"])
        worst = max(worst, float(np.abs(logits - expected).max()))
        for ended in forward["finished_steps"]:
            team.publish(ended["worker"])
    lost = team.close()
    if lost:
        raise RuntimeError(f"{lost} KV tokens were not given back")
    return worst
