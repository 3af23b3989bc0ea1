"""Simulated collaborations: what workers see, and what they choose from it."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hogwild_sgl.bench.worklist.simulate import (
    LAYOUTS,
    OTHERS,
    OWN,
    PROMPT,
    Collaboration,
    Forward,
    Play,
    prompt_pieces,
)
from hogwild_sgl.prompts import WORKER_NAMES
from hogwild_sgl.worklist import tokenizer, words
from hogwild_sgl.worklist.task import Item, Split, Task, draw_task

NAMES = [f" {name}" for name in words.ITEM_NAMES]
STEPS = OWN + 1  # the first segment of a step


@pytest.fixture(scope="module")
def model_tokenizer():
    return tokenizer.build()


def play(seed: int, items: int, workers: int, layout: str, checks: bool = False):
    rng = random.Random(seed)
    task = draw_task(rng, items, Split.TRAIN)
    team = Collaboration(task, WORKER_NAMES[:workers], layout, rng, checks)
    return team, team.run()


def shown(played: Play, forward: Forward) -> list[str]:
    """The view of a forward as pieces, up to those that it computes."""
    return [piece for segment, n in forward.view for piece in played.segments[segment][:n]]


def choices(played: Play) -> list[tuple[Forward, list[str], str]]:
    """The forwards in which steps say what they do, what they see then, and what they say."""
    return [
        (forward, shown(played, forward), played.segments[forward.segment][forward.last])
        for forward in played.forwards
        if forward.last == played.chosen.get(forward.segment)
    ]


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 9999), st.integers(1, 9), st.integers(1, 5), st.sampled_from(LAYOUTS))
def test_the_tokenizer_splits_every_view_into_the_pieces_it_was_made_of(
    model_tokenizer, seed, items, workers, layout
):
    _, played = play(seed, items, workers, layout, checks=True)
    for _, view, _ in choices(played):
        ids = model_tokenizer.encode("".join(view))
        assert model_tokenizer.convert_ids_to_tokens(ids) == view


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 9999), st.integers(1, 9), st.integers(1, 5), st.sampled_from(LAYOUTS))
def test_nobody_takes_an_item_that_stands_in_its_view(seed, items, workers, layout):
    _, played = play(seed, items, workers, layout)
    for forward, view, choice in choices(played):
        written = view[len(played.segments[PROMPT]) :]
        good = played.good_at(forward.segment, forward.last)
        assert choice in good
        if choice in NAMES:
            assert not good & set(written)


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 9999), st.integers(1, 9), st.integers(1, 5), st.sampled_from(LAYOUTS))
def test_every_piece_is_computed_once_and_seen_by_the_others_in_the_same_forward(
    seed, items, workers, layout
):
    team, played = play(seed, items, workers, layout, checks=True)
    computed = {}
    for forward in played.forwards:
        assert forward.first == computed.get(forward.segment, 0)
        computed[forward.segment] = forward.last
    assert set(computed) == set(range(STEPS + len(team.steps)))
    # One forward a piece, and what opens a step in a single one.
    for step in team.steps:
        own = [f for f in played.forwards if f.segment == step.segment]
        assert own[0].last == step.start
        assert [f.last - f.first for f in own[1:]] == [1] * (len(own) - 1)
    for step in team.published:
        assert computed[step.segment] == len(step.pieces)
    if layout in ("combined", "contiguous"):
        # All look at once: one sees of another what is computed in that very forward.
        for before, after in zip(played.forwards, played.forwards[1:], strict=False):
            seen, back = dict(before.view), dict(after.view)
            if after.segment in seen and before.segment in back:
                assert seen[after.segment] in (after.last, after.first)
                assert back[before.segment] >= before.last


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
    # One item, two workers: both take it in the same forward.
    team, played = play(0, 1, 2, "combined")
    name = f" {team.task.items[0].name}"
    (left,) = [step for step in team.published if step.yielded]
    assert left.worker == 1
    assert left.pieces[left.chosen :] == [name, words.IS_WITH, " Alice", "."]
    # Both have named it where it is left.
    (decided,) = [
        f for f in played.forwards if f.segment == left.segment and f.last == left.chosen + 1
    ]
    assert shown(played, decided).count(name) == 3  # in the list, by Alice, by Bob


def test_whoever_waits_may_wait_for_anyone_who_is_at_work():
    _, played = play(1, 6, 4, "combined")
    waits = [c for c in choices(played) if c[2] == words.WAITING]
    for forward, view, _ in waits:
        others = view[view.index(words.OTHERS) : view.index(words.OWN)]
        writing = {f" {piece[2:]}" for piece in others if piece.startswith("**")}
        whom = played.segments[forward.segment][forward.last + 1]
        assert whom in played.good_at(forward.segment, forward.last + 1) <= writing
    assert any(len(played.good_at(f.segment, f.last + 1)) > 1 for f, _, _ in waits)


def test_what_a_worker_writes_is_learned_and_what_it_is_fed_is_not():
    team, played = play(2, 4, 2, "combined", checks=True)
    for step in team.steps:
        marks = played.learn[step.segment]
        assert marks == (False,) * step.start + (True,) * (len(step.pieces) + 1 - step.start)
        assert played.segments[step.segment][-1] == words.BREAK
    assert not any(map(any, played.learn[:STEPS]))


def test_conflicts_and_what_is_done_when_no_item_is_left_are_marked_as_rare():
    team, played = play(4, 6, 3, "combined")
    kinds = {"late": 0, "left": 0, "plain": 0}
    for step in team.steps:
        late = step.pieces[step.chosen] in (words.WAITING, words.ALL_DONE)
        assert ((step.segment, step.chosen) in played.rare) == late
        if step.yielded:
            assert (step.segment, step.chosen + 1) in played.rare
        kinds["late" if late else "left" if step.yielded else "plain"] += 1
    assert all(kinds.values())
    # Alone nobody contests anything.
    _, alone = play(4, 6, 1, "combined")
    assert len(alone.rare) == 1


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
        team = Collaboration(task, WORKER_NAMES[:2], layout, random.Random(3))
        played = team.run()
        writer = {step.segment: step.worker for step in team.steps}
        for forward in played.forwards:
            if forward.segment not in writer:
                continue
            view = [segment for segment, _ in forward.view]
            assert view[0] == PROMPT and dict(forward.view)[PROMPT] == len(prompt_pieces(task))
            assert (OTHERS in view) == (layout in ("combined", "contiguous"))
            assert (OWN in view) == (layout != "independent")
            behind = view[view.index(OWN) + 1 :] if OWN in view else view[1:]
            assert {writer[segment] for segment in behind} == {writer[forward.segment]}
            if layout == "contiguous":
                before = view[view.index(OTHERS) + 1 : view.index(OWN)]
                assert writer[forward.segment] not in {writer[segment] for segment in before}


def test_what_does_not_fit_together_is_refused():
    with pytest.raises(ValueError, match="one mark"):
        Play((("a", "b"),), (), ((True,),), {})
    with pytest.raises(ValueError, match="not a good choice"):
        Play((("a",),), (), ((True,),), {(0, 0): frozenset("b")})
    with pytest.raises(ValueError, match="end of its view"):
        Forward(1, 0, 2, ((1, 2), (0, 1)))
