"""Forwards lost between a worker's steps, from a transcript and from records."""

from __future__ import annotations

import pytest

from hogwild_sgl.bench.speed.gaps import gaps, gaps_between
from hogwild_sgl.transcript import Step


def step(worker: int | None, start: int, end: int, kind: str = "step") -> Step:
    return Step(
        *(kind, worker, None, None, None, "", "", 0, end - start, start, end, 0.0, 0.0),
    )


def test_a_gap_is_counted_between_the_steps_of_one_worker():
    alice = [step(0, 0, 5), step(0, 7, 9), step(0, 9, 12)]
    bob = [step(1, 0, 3), step(1, 4, 12)]
    assert gaps([alice[0], bob[0], alice[1], *bob[1:], alice[2]]) == [2, 0, 1]


def test_only_what_a_worker_has_published_counts():
    steps = [step(0, 0, 5), step(0, 5, 8, "dropped"), step(None, 6, 7, "said"), step(0, 9, 11)]
    assert gaps([*steps, step(None, 11, 14, "reader")]) == [4]
    assert gaps([]) == []


def test_records_give_the_same_in_any_order_and_overlaps_are_refused():
    assert gaps_between([(7, 9), (0, 5), (9, 12)]) == [2, 0]
    with pytest.raises(ValueError, match="overlap"):
        gaps_between([(0, 5), (4, 9)])
