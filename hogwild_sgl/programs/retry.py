"""A team whose workers write a step again when the history has moved under it.

A step rests on the history as it was when the step began. When another worker publishes a
step in the meantime, that may take the ground from under it: it corrects this worker, or
does the same work. Then this program drops the half-written step whole and lets the worker
write it anew, with the published step before its eyes.

    python -m programs.retry "How many primes are there below 30?" --max-retries 2
"""

from __future__ import annotations

import re

import sglang as sgl

from hogwild_sgl.driver.commands import FinishedStep, LiveText
from hogwild_sgl.program.program import TEAM, Program, Watch
from hogwild_sgl.program.settings import Settings
from hogwild_sgl.programs.collaborate import collaborate
from hogwild_sgl.transcript import Result

CORRECTION = re.compile(
    r"\b(wrong|mistake|error|incorrect|not right|redo|already (?:did|done|have))\b"
    r"|不对|错了|有误|已经(?:做|算)过",
    re.IGNORECASE,
)
# A live step repeats a published one when at least this part of its runs of four words
# is in it, and it has enough of them to tell.
OVERLAP, ENOUGH = 0.5, 6


def conflicts(finished: FinishedStep, live: LiveText) -> bool:
    """Does the published step correct the writer of the live one, or make it redundant?"""
    corrects = live.name in finished.text and CORRECTION.search(finished.text) is not None
    own, other = _runs(live.text), _runs(finished.text)
    repeats = len(own) >= ENOUGH and len(own & other) >= OVERLAP * len(own)
    return corrects or repeats


def _runs(text: str, length: int = 4) -> set[tuple[str, ...]]:
    words = re.findall(r"[一-鿿]|\w+", text.lower())
    return {tuple(words[i : i + length]) for i in range(len(words) - length + 1)}


@sgl.function
def retry(s, problem: str, settings: Settings, watch: Watch | None = None) -> Result:
    return collaborate(s, "retry", problem, settings, watch, conflict=conflicts)


PROGRAM = Program(
    name="retry",
    function=retry,
    about="A team solves a problem; a step is written again if another overtakes it.",
    options=("max_retries", "workers", "names", *TEAM),
    team=True,
)

if __name__ == "__main__":
    from hogwild_sgl.program.command import main

    main(PROGRAM)
