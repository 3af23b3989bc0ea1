"""The step-end rule, by examples and by properties."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtime_patch.scheduler.end_rule import SENTENCE_MARKS, ends_step
from tests.oracle.tiny_tokenizer import build_tokenizer

MARKS = sorted(SENTENCE_MARKS)


def ends_at(pieces: list[str]) -> list[int]:
    """Indexes of the pieces at which a step written in them would end."""
    texts = ["".join(pieces[: i + 1]) for i in range(len(pieces))]
    return [i for i, piece in enumerate(pieces) if ends_step(texts[i], piece)]


@pytest.mark.parametrize(
    ("pieces", "ends"),
    [
        (["So it is two", ".\n\n"], [1]),
        (["So it is two.", "\n\n"], [1]),
        (["Really?", "\n\n", "Yes!", "\n\n"], [1, 3]),
        (["It is two.", "\n", "\n"], []),
        (["It is two", "\n\n"], []),
        (["We have:", "\n\n"], []),
        (["It is two. ", "\n\n"], []),
        (["It is two.", "\n\nBob"], [1]),
        (["It is two.", "\n\n\n\n"], [1]),
        (["It is two", ", no.\n\nthree\n\n"], [1]),
        (["\n\n"], []),
        ([".\n\n"], [0]),
        (["答案是二", "。\n\n"], [1]),
        (["本当ですか？", "\n\n"], [1]),
        (["كم؟", "\n\n"], [1]),
        (["दो हैं।", "\n\n"], [1]),
        (["Wait…", "\n\n"], [1]),
    ],
    ids=str,
)
def test_a_step_ends_at_a_blank_line_that_one_token_brings_behind_a_sentence(pieces, ends):
    assert ends_at(pieces) == ends


@pytest.mark.parametrize(
    ("pieces", "ends"),
    [
        (["```python\n", "x = 1  # one.", "\n\n", "y = 2\n```\nSo.", "\n\n"], [4]),
        (["~~~\n", "Text.", "\n\n", "~~~\nSo.", "\n\n"], [4]),
        (["  ```\n", "Text.", "\n\n"], []),
        (["Use ``` in a line.", "\n\n"], [1]),
        (["$$\nx = 2.", "\n\n", "$$ So.", "\n\n"], [3]),
        (["$$ x $$ So.", "\n\n"], [1]),
        (["It costs $5.", "\n\n"], [1]),
    ],
    ids=str,
)
def test_a_step_does_not_end_inside_a_code_fence_or_a_formula(pieces, ends):
    assert ends_at(pieces) == ends


words = st.text(st.characters(exclude_characters="\n`~$", exclude_categories=["Cs"]), max_size=12)


@given(words, st.sampled_from(MARKS), words)
def test_every_sentence_mark_ends_a_step_wherever_it_is_cut_into_tokens(before, mark, rest):
    text = before + mark + "\n\n" + rest
    for cut in range(len(before) + len(mark) + 1):
        assert ends_step(text, text[cut:])


@given(words, words)
def test_without_a_blank_line_in_the_newest_token_no_step_ends(before, newest):
    assert not ends_step(before + ".\n\n" + newest, newest)


@given(words.filter(lambda text: text[-1:] not in SENTENCE_MARKS), words)
def test_without_a_sentence_mark_before_the_blank_line_no_step_ends(before, rest):
    assert not ends_step(before + "\n\n" + rest, "\n\n" + rest)


@given(words, st.sampled_from(["```\n", "~~~\n", "$$"]), words, st.sampled_from(MARKS))
def test_an_open_block_holds_the_end_back_and_its_close_lets_it_go(before, opening, inside, mark):
    text = f"{before}\n{opening}{inside}{mark}\n\n"
    assert not ends_step(text, "\n\n")
    closed = f"{text}\n{opening}{mark}\n\n"
    assert ends_step(closed, "\n\n")


@given(st.lists(st.sampled_from(["So", " x", ".", "\n", "\n\n", ".\n\n", "```", "$$"]), max_size=9))
def test_a_text_ends_at_most_where_its_tokens_bring_a_blank_line(pieces):
    for index in ends_at(pieces):
        assert "\n\n" in pieces[index]


def test_the_tiny_models_step_ends_are_single_tokens():
    tokenizer = build_tokenizer()
    for text in ("two.\n\n", "two!\n\n", "two?\n\n", "二。\n\n"):
        ids = tokenizer.encode(text, add_special_tokens=False).ids
        pieces = [tokenizer.decode([token]) for token in ids]
        assert ends_step(text, pieces[-1])
