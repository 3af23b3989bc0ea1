"""Simulated collaborations: what workers see, and what they choose from it."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bench.worklist.simulate import LAYOUTS, Collaboration, Snapshot
from hogwild_sgl.prompts import WORKER_NAMES
from hogwild_sgl.worklist import tokenizer, words
from hogwild_sgl.worklist.task import Item, Split, Task, draw_task

NAMES = [f" {name}" for name in words.ITEM_NAMES]


@pytest.fixture(scope="module")
def model_tokenizer():
    return tokenizer.build()


def play(seed: int, items: int, workers: int, layout: str, checks: bool = False):
    rng = random.Random(seed)
    task = draw_task(rng, items, Split.TRAIN)
    team = Collaboration(task, WORKER_NAMES[:workers], layout, rng, checks)
    return team, list(team.run())


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 9999), st.integers(1, 9), st.integers(1, 5), st.sampled_from(LAYOUTS))
def test_the_tokenizer_splits_every_view_into_the_pieces_it_was_made_of(
    model_tokenizer, seed, items, workers, layout
):
    _, seen = play(seed, items, workers, layout, checks=True)
    for snapshot in seen:
        ids = model_tokenizer.encode("".join(snapshot.view))
        assert model_tokenizer.convert_ids_to_tokens(ids) == snapshot.view


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 9999), st.integers(1, 9), st.integers(1, 5), st.sampled_from(LAYOUTS))
def test_nobody_takes_an_item_that_stands_in_its_view(seed, items, workers, layout):
    team, seen = play(seed, items, workers, layout)
    for snapshot in seen:
        choice = snapshot.view[snapshot.chosen]
        if snapshot.learn[snapshot.chosen] and choice in NAMES:
            written = snapshot.view[snapshot.view.index(words.PREAMBLE) : snapshot.chosen]
            assert choice not in written


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 9999), st.integers(1, 9), st.integers(1, 5), st.sampled_from(LAYOUTS))
def test_every_item_is_done_before_the_last_line(seed, items, workers, layout):
    team, _ = play(seed, items, workers, layout)
    (final,) = [step for step in team.published if step.is_final][:1]
    writer = final.worker if layout == "independent" else None
    done = {s.item for s in team.published if not s.yielded and writer in (None, s.worker)}
    assert done >= {item.name for item in team.task.items}
    assert "".join(final.pieces[final.chosen :]) == team.task.final()


def test_who_sees_live_steps_repeats_nothing_and_who_sees_none_repeats_everything():
    def repeated(layout: str) -> int:
        count = 0
        for seed in range(10):
            items = [
                s.item for s in play(seed, 8, 2, layout)[0].published if s.item and not s.yielded
            ]
            count += len(items) - len(set(items))
        return count

    assert repeated("combined") == repeated("contiguous") == 0
    assert 0 < repeated("interleaved") < repeated("independent")


def test_of_two_that_take_the_same_item_at_once_the_later_one_leaves_it():
    # One item, two workers: both take it in the same tick.
    team, seen = play(0, 1, 2, "combined")
    conflicts = [snapshot for snapshot in seen if snapshot.conflict]
    assert len(conflicts) == 2
    name = f" {team.task.items[0].name}"
    (left,) = [step for step in team.published if step.yielded]
    assert left.worker == 1
    assert left.pieces[left.chosen :] == [name, words.IS_WITH, " Alice", "."]


def test_whoever_waits_may_wait_for_anyone_who_is_at_work():
    waits = [s for s in play(1, 6, 4, "combined")[1] if s.view[s.chosen] == words.WAITING]
    assert waits and any(len(s.good_at(s.chosen + 1)) > 1 for s in waits)
    for snapshot in waits:
        others = snapshot.view[snapshot.view.index(words.OTHERS) : snapshot.view.index(words.OWN)]
        writing = {f" {piece[2:]}" for piece in others if piece.startswith("**")}
        assert (
            snapshot.view[snapshot.chosen + 1] in snapshot.good_at(snapshot.chosen + 1) <= writing
        )


def test_what_a_step_chose_is_not_learned_from_a_view_that_has_changed_since():
    _, seen = play(0, 1, 2, "combined")
    for snapshot in seen:
        if snapshot.conflict:
            assert not snapshot.learn[snapshot.chosen]
            assert snapshot.learn[snapshot.chosen + 1]


def test_a_check_is_answered_with_yes_by_a_worker_whose_last_item_is_also_anothers():
    answers = set()
    for seed in range(60):
        team, _ = play(seed, 4, 3, "interleaved", checks=True)
        for step in team.published:
            if words.CHECK in step.pieces:
                answers.add(step.pieces[step.pieces.index(words.CHECK) + 1])
    assert answers == {words.YES, words.NO}


def test_views_follow_the_layouts():
    task = Task(
        (Item("fox", 27, 58), Item("owl", 12, 31), Item("elk", 40, 20), Item("cow", 11, 11))
    )
    for layout in LAYOUTS:
        rng = random.Random(3)
        for snapshot in Collaboration(task, WORKER_NAMES[:2], layout, rng).run():
            view = snapshot.view
            assert (words.OTHERS in view) == (layout in ("combined", "contiguous"))
            assert (words.OWN in view) == (layout != "independent")
            writer = view[: snapshot.chosen][-3]
            behind = view[view.index(words.OWN) :] if words.OWN in view else view
            others = [piece for piece in behind if piece.startswith("**") and piece != writer]
            assert not others


def test_a_snapshot_with_a_mark_too_few_is_refused():
    with pytest.raises(ValueError, match="one mark"):
        Snapshot(["a", "b"], [True], 0, {0: frozenset("a")})
