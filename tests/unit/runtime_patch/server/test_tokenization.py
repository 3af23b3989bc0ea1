"""Tokenization become tokens: prompts with special tokens, what stands inside a view without."""

from __future__ import annotations

import pytest
from transformers import PreTrainedTokenizerFast

from runtime_patch.errors import TeamError
from runtime_patch.scheduler.team import Kind
from runtime_patch.server.schemas import Formatting, OpenTeam
from runtime_patch.server.tokenization import Tokenization
from tests.oracle.tiny_tokenizer import BOS, SIZE, write_tokenizer


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tokenizer")
    write_tokenizer(folder)
    return PreTrainedTokenizerFast.from_pretrained(folder)


@pytest.fixture
def texts(tokenizer) -> Tokenization:
    return Tokenization(tokenizer, SIZE)


def test_a_prompt_begins_with_the_models_special_token_and_a_header_does_not(texts):
    prompt = texts.prompt(OpenTeam(prompt="Add."))
    assert prompt[0] == BOS and prompt[1:] == texts.inner("Add.", None)
    headers = texts.headers(Formatting(header_others="Others:\n\n", header_own=""))
    assert BOS not in headers[Kind.HEADER_OTHERS] and headers[Kind.HEADER_OWN] == []


def test_messages_go_through_the_models_template_once_with_its_special_tokens(texts, tokenizer):
    messages = [{"role": "user", "content": "Add."}]
    body = OpenTeam(messages=messages, chat_template_kwargs={"enable_thinking": True})
    text = "<s><|im_start|>user\nAdd.<|im_end|>\n<|im_start|>assistant\n<think>\n"
    assert texts.decode(texts.prompt(body)) == text
    assert texts.prompt(body).count(BOS) == 1


def test_a_model_without_a_template_is_told_to_send_a_prompt(tokenizer):
    bare = PreTrainedTokenizerFast(tokenizer_object=tokenizer.backend_tokenizer)
    with pytest.raises(TeamError, match="no chat template: send a prompt"):
        Tokenization(bare, SIZE).prompt(OpenTeam(messages=[{"role": "user", "content": "Add."}]))


def test_a_template_that_fails_is_bad_input(tokenizer):
    broken = PreTrainedTokenizerFast(tokenizer_object=tokenizer.backend_tokenizer)
    broken.chat_template = "{{ raise_exception('roles must alternate') }}"
    with pytest.raises(TeamError, match="template failed: roles must alternate"):
        Tokenization(broken, SIZE).prompt(OpenTeam(messages=[{"role": "user", "content": "Add."}]))


def test_token_ids_are_taken_as_they_are_if_the_model_knows_them(texts):
    assert texts.prompt(OpenTeam(input_ids=[7, 5, SIZE - 1])) == [7, 5, SIZE - 1]
    assert texts.inner(None, [7]) == [7] and texts.inner(None, None) == []
    for token in (-1, SIZE):
        with pytest.raises(TeamError, match=f"no token {token}: .* vocabulary has {SIZE}"):
            texts.inner(None, [7, token])


def test_a_tokenizer_that_knows_more_than_the_model_is_caught(tokenizer):
    with pytest.raises(TeamError, match="vocabulary has 6"):
        Tokenization(tokenizer, 6).prompt(OpenTeam(prompt="Add."))


def test_without_a_tokenizer_only_token_ids_are_taken():
    texts = Tokenization(None, SIZE)
    assert texts.prompt(OpenTeam(input_ids=[9])) == [9] and texts.decode([9]) == ""
    for body in (OpenTeam(prompt="a"), OpenTeam(messages=[{"role": "user", "content": "a"}])):
        with pytest.raises(TeamError, match="send token ids, not text"):
            texts.prompt(body)
