"""Forwards that a worker loses between its steps."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from hogwild_sgl.transcript import Step


def gaps(steps: Iterable[Step]) -> list[int]:
    """Forwards in which a worker had no row between two steps of its own.

    steps: a transcript. One number for each of a worker's published steps but its first, in
    the order of the workers and then of their steps: its ``start_pass`` less the
    ``end_pass`` of the one before.
    """
    spans: dict[int, list[tuple[int, int]]] = {}
    for step in steps:
        if step.kind == "step" and step.worker is not None:
            spans.setdefault(step.worker, []).append((step.start_pass, step.end_pass))
    return [gap for worker in sorted(spans) for gap in gaps_between(spans[worker])]


def gaps_between(spans: Sequence[tuple[int, int]]) -> list[int]:
    """The same for one worker. spans: the team's forwards (``team_forwards``) when each step
    began and ended, in any order.

    Raises ValueError if two steps overlap, which one worker's cannot.
    """
    ordered = sorted(spans)
    found = [after[0] - before[1] for before, after in zip(ordered, ordered[1:], strict=False)]
    if any(gap < 0 for gap in found):
        raise ValueError(f"a worker's steps overlap: {ordered}")
    return found
