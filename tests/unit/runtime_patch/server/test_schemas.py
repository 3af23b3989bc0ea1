"""Bodies of the routes: what is taken, what is refused, and in which words."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from runtime_patch.server.schemas import AbortStep, OpenTeam, Say, WriteStep


def test_only_a_prompt_is_needed_to_open_a_team():
    body = OpenTeam(prompt="Add.")
    assert body.workers == ["Alice", "Bob"] and body.layout == "combined"
    assert body.formatting.headers == "isolated" and body.idle_timeout == 600


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({}, "exactly one of prompt, messages, input_ids"),
        ({"prompt": "a", "messages": [{"role": "user", "content": "a"}]}, "exactly one of"),
        ({"prompt": ""}, "the prompt is empty"),
        ({"input_ids": []}, "the prompt is empty"),
        ({"prompt": "a", "workers": ["A"]}, "2 to 16 workers, got 1"),
        ({"prompt": "a", "workers": ["A", "A"]}, "distinct and not empty"),
        ({"prompt": "a", "workers": ["A", "\t"]}, "distinct and not empty"),
        ({"prompt": "a", "idle_timeout": 0}, "greater than 0"),
        ({"prompt": "a", "speed": 9}, "not permitted"),
        ({"prompt": "a", "formatting": {"headers": "last"}}, "'isolated' or 'prompt'"),
        (
            {"prompt": "a", "formatting": {"header_own": "a", "header_own_ids": [1]}},
            "exactly one of header_own, header_own_ids",
        ),
        (
            {"prompt": "a", "formatting": {"header_others": "a", "header_others_ids": []}},
            "exactly one of header_others, header_others_ids",
        ),
    ],
    ids=str,
)
def test_an_opening_that_makes_no_sense_is_refused_in_words(body, words):
    with pytest.raises(ValidationError, match=words):
        OpenTeam(**body)


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({}, "name the worker, or make it a reader"),
        ({"worker": 0, "text": "a", "input_ids": [1]}, "exactly one of text, input_ids"),
        ({"worker": 0, "end": "line"}, "'sentence' or 'none'"),
        ({"worker": 0, "logprob_start_len": -2}, "greater than or equal to -1"),
        ({"worker": 0, "top_logprobs_num": -1}, "greater than or equal to 0"),
        ({"reader": True, "text": "a", "after_live": True}, "not for a reader"),
        ({"worker": 0, "after_live": True}, "needs a text"),
        ({"worker": 0, "text": "a", "separator": "b"}, "sent with after_live"),
        (
            {"worker": 0, "input_ids": [1], "after_live": True, "separator": "b"},
            "separator is for the text",
        ),
        ({"reader": True, "text": "a", "until_forwards": 9}, "not for a reader"),
        ({"reader": True, "text": "a", "number": 2}, "not for a reader"),
        ({"worker": 0, "until_forwards": 0}, "greater than or equal to 1"),
    ],
    ids=str,
)
def test_a_step_that_makes_no_sense_is_refused_in_words(body, words):
    with pytest.raises(ValidationError, match=words):
        WriteStep(**body)


def test_a_reader_may_stand_in_a_workers_place_or_nowhere():
    assert WriteStep(reader=True, text="So").worker is None
    assert WriteStep(reader=True, worker="Bob", text="So").worker == "Bob"


@pytest.mark.parametrize("body", [{}, {"worker": 1}, {"text": "a", "input_ids": [1]}])
def test_a_said_text_is_given_once(body):
    with pytest.raises(ValidationError, match="exactly one of text, input_ids"):
        Say(**body)


def test_an_abort_names_the_worker():
    with pytest.raises(ValidationError, match="worker"):
        AbortStep()
