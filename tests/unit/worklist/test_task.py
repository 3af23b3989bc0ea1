"""Lists of sums: what a line reads, and that nothing of the tests is trained on."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hogwild_sgl.worklist.task import Item, Split, Task, draw_task, split_of, task_of
from hogwild_sgl.worklist.words import ITEM_NAMES


def test_a_line_works_out_units_then_tens_with_the_carry():
    assert Item("fox", 27, 58).line() == " fox 27 58: 7 + 8 = 15, 2 + 5 + 1 = 8, 85."
    assert Item("owl", 12, 31).line() == " owl 12 31: 2 + 1 = 3, 1 + 3 = 4, 43."


@given(st.integers(10, 89), st.integers(10, 89))
def test_every_line_ends_in_the_sum(left: int, right: int):
    if left + right > 99:
        with pytest.raises(ValueError, match="below 100"):
            Item("fox", left, right)
    else:
        units, tens, result = Item("fox", left, right).line().partition(":")[2].split(",")
        assert int(result.strip(" .")) == left + right
        assert int(tens.split("=")[1]) == (left + right) // 10
        assert int(units.split("=")[1]) % 10 == (left + right) % 10


def test_the_last_line_needs_the_smallest_and_the_largest_result():
    task = Task((Item("fox", 27, 58), Item("owl", 12, 31), Item("elk", 40, 20)))
    assert task.final() == " All done: smallest 43, largest 85."


@given(st.integers(0, 1000), st.integers(1, len(ITEM_NAMES)))
def test_a_prompt_is_read_back_as_the_task_it_came_from(seed: int, items: int):
    task = draw_task(random.Random(seed), items, Split.TEST)
    assert task_of(task.prompt) == task


@pytest.mark.parametrize(
    "prompt",
    [
        "",
        "fox 27 58",
        "Sums: fox 27.",
        "Sums: fox 27 99.",
        "Sums: cow 12 13; cow 14 15.",
        "Sums: zebra 12 13.",
    ],
)
def test_a_prompt_that_is_no_list_of_sums_is_refused(prompt: str):
    with pytest.raises(ValueError):
        task_of(prompt)


def test_pairs_of_numbers_are_for_training_or_for_tests_in_either_order():
    drawn = {split: draw_task(random.Random(1), 30, split) for split in Split}
    for split, task in drawn.items():
        for item in task.items:
            assert split_of(item.left, item.right) is split
            assert split_of(item.right, item.left) is split
    share = sum(split_of(a, b) is Split.TEST for a in range(10, 50) for b in range(10, 50)) / 1600
    assert 0.1 < share < 0.3
