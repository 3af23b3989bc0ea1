"""Redundant work: how much of a text repeats what others had already written.

Shingles are runs of ``n`` tokens. A shingle of a step is redundant if it stood in another
worker's text at the moment it was written, and neither in the problem nor in the
writer's own earlier text. When a token was written follows from the step's first and last
forward pass: a worker writes one token per pass, so the tokens of a step are spread
evenly between the two. The measure therefore does not ask what a worker could see: it
shows for `independent` workers how much they duplicate, and for `combined` ones how much
of that seeing each other avoids.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from hogwild_sgl.bench.report.phrases import tokens
from hogwild_sgl.transcript import Result, Step

SHINGLE = 5
Shingle = tuple[str, ...]


def shingles(words: Sequence[str], n: int = SHINGLE) -> Iterator[tuple[int, Shingle]]:
    """Each run of ``n`` tokens with the place of its last token."""
    for end in range(n, len(words) + 1):
        yield end - 1, tuple(words[end - n : end])


def when(step: Step, place: int, count: int) -> float:
    """The forward pass at which token ``place`` of ``count`` was written."""
    return step.start_pass + (step.end_pass - step.start_pass) * (place + 1) / count


def written_text(step: Step) -> str:
    """What its writer wrote: what was fed to a step is not, what was said is."""
    return step.full_text if step.kind == "said" else step.text


def _first_written(step: Step, n: int) -> list[tuple[Shingle, float]]:
    words = tokens(written_text(step))
    return [(shingle, when(step, place, len(words))) for place, shingle in shingles(words, n)]


def redundancy(result: Result, n: int = SHINGLE) -> dict[int, tuple[int, int]]:
    """(redundant shingles, all shingles) of each worker's step, by place in ``result.steps``.

    Steps that were dropped count for nobody; a voice from outside counts as text that
    others wrote. Steps shorter than ``n`` tokens have no shingles and are left out.
    """
    counted = [(at, step) for at, step in enumerate(result.steps) if step.kind in ("step", "said")]
    written = {at: _first_written(step, n) for at, step in counted}
    asked = {shingle for _, shingle in shingles(tokens(result.problem), n)}
    # For each shingle: when each writer first wrote it.
    first: dict[Shingle, dict[int | None, float]] = {}
    for at, step in counted:
        for shingle, time in written[at]:
            writers = first.setdefault(shingle, {})
            writers[step.worker] = min(time, writers.get(step.worker, time))
    found = {}
    for at, step in counted:
        if step.worker is None or not written[at]:
            continue
        repeated = 0
        for shingle, time in written[at]:
            writers = first[shingle]
            own = writers[step.worker] < time
            others = any(w != step.worker and t < time for w, t in writers.items())
            repeated += others and not own and shingle not in asked
        found[at] = (repeated, len(written[at]))
    return found
