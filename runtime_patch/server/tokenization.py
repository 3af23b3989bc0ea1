"""Texts to tokens and back, in the server process."""

from __future__ import annotations

from typing import Any

from runtime_patch.errors import TeamError
from runtime_patch.server.schemas import Formatting, OpenTeam
from runtime_patch.team_request import Kind


class Tokenization:
    """Tokenises prompts with special tokens, everything else without.

    tokenizer: the model's, or None on a server started with --skip-tokenizer-init, which
        takes token ids only.
    vocab_size: rows of the model's embedding; SGLang does not look whether a token has
        one, and a token without one ends the scheduler."""

    def __init__(self, tokenizer: Any, vocab_size: int):
        self._tokenizer = tokenizer
        self._vocab_size = vocab_size

    @property
    def has_tokenizer(self) -> bool:
        return self._tokenizer is not None

    def prompt(self, body: OpenTeam) -> list[int]:
        if body.input_ids is not None:
            tokens = body.input_ids
        elif body.prompt is not None:
            tokens = self._require().encode(body.prompt)
        else:
            tokens = self._chat(body)
        if not tokens:
            raise TeamError("the prompt is empty")
        return self._known(tokens)

    def _chat(self, body: OpenTeam) -> list[int]:
        tokenizer = self._require()
        if not getattr(tokenizer, "chat_template", None):
            raise TeamError("this model has no chat template: send a prompt, not messages")
        try:
            text = tokenizer.apply_chat_template(
                body.messages,
                tokenize=False,
                add_generation_prompt=True,
                **body.chat_template_kwargs,
            )
        except Exception as error:  # the template is the model's own code
            raise TeamError(f"the model's chat template failed: {error}") from error
        # The template writes its own special tokens.
        return tokenizer.encode(text, add_special_tokens=False)

    def headers(self, formatting: Formatting) -> dict[Kind, list[int]]:
        return {
            Kind.HEADER_OTHERS: self.inner(formatting.header_others, formatting.header_others_ids),
            Kind.HEADER_OWN: self.inner(formatting.header_own, formatting.header_own_ids),
        }

    def inner(self, text: str | None, ids: list[int] | None) -> list[int]:
        """Tokens of a text in the middle of a view; no text is no tokens."""
        if ids is None:
            ids = self._require().encode(text, add_special_tokens=False) if text else []
        return self._known(ids)

    def decode(self, tokens: list[int]) -> str:
        return self._tokenizer.decode(tokens) if self._tokenizer else ""

    def _known(self, tokens: list[int]) -> list[int]:
        for token in tokens:
            if not 0 <= token < self._vocab_size:
                raise TeamError(
                    f"there is no token {token}: the model's vocabulary has {self._vocab_size}"
                )
        return list(tokens)

    def _require(self) -> Any:
        if self._tokenizer is None:
            raise TeamError(
                "this server has no tokenizer (--skip-tokenizer-init): send token ids, not text"
            )
        return self._tokenizer
