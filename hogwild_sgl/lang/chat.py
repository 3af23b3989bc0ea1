"""The conversation behind a state: its chat messages, and the assistant's open turn.

SGLang's frontend writes chat roles into the state's text with a template that it guesses
from the model's path. Here that text is only for reading: the messages recorded beside it
go through the model's own chat template, in the server.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from sglang.lang.chat_template import ChatTemplate
from sglang.lang.interpreter import StreamExecutor

# How the text of a state shows its roles. Never sent to a model.
SHOWN = ChatTemplate(
    name="hogwild",
    default_system_prompt=None,
    role_prefix_and_suffix={
        "system": ("[system]\n", "\n\n"),
        "user": ("[user]\n", "\n\n"),
        "assistant": ("[assistant]\n", "\n\n"),
    },
)

OUTSIDE = (
    "This text stands outside the chat roles: {text!r}. A chat template has no place for it; "
    "put it into s.system(...), s.user(...) or s.assistant(...), or use no roles at all."
)


@dataclass(frozen=True)
class Conversation:
    """messages: as in the OpenAI API. turn: what the assistant's open turn holds."""

    messages: tuple[Mapping[str, str], ...]
    turn: str


def conversation(executor: StreamExecutor) -> Conversation | None:
    """What a state's roles say; None for a state that used no roles.

    Text after the last role is the assistant's turn. ValueError for text between roles,
    for images, and where it is not the assistant's turn.
    """
    messages, template = executor.messages_, executor.chat_template
    if not messages and executor.cur_role is None:
        return None
    if executor.images_:
        raise ValueError("images and videos cannot be put into a team's prompt")
    rest = executor.text_
    for index, message in enumerate(messages):
        rest = _after(rest, message, *_marks(template, message["role"], messages[:index]))
    if executor.cur_role is None:
        turn = rest
    elif executor.cur_role == "assistant":
        opening, _ = _marks(template, "assistant", messages)
        if not rest.startswith(opening):
            raise ValueError(OUTSIDE.format(text=rest[:80]))
        turn = rest[len(opening) :]
    else:
        raise ValueError(
            f"generation inside the {executor.cur_role} role; only the assistant's turn is "
            f"generated: end the role first"
        )
    # SGLang puts in the system prompt of the template it guessed; the model's own
    # template brings its own.
    default = template.default_system_prompt
    if messages and default and messages[0] == {"role": "system", "content": default}:
        messages = messages[1:]
    if not messages:
        raise ValueError("the assistant's turn comes before any s.user(...)")
    if executor.cur_role is None and messages[-1]["role"] == "assistant":
        raise ValueError("the conversation ends with the assistant's turn; add s.user(...) first")
    return Conversation(tuple(dict(message) for message in messages), turn)


def _marks(template: ChatTemplate, role: str, before: list) -> tuple[str, str]:
    prefix, suffix = template.get_prefix_and_suffix(role, before)
    return prefix or "", suffix or ""


def _after(text: str, message: Mapping[str, str], prefix: str, suffix: str) -> str:
    """What follows ``message`` in the text; SGLang strips a message's leading blanks."""
    if not text.startswith(prefix):
        raise ValueError(OUTSIDE.format(text=text[:80]))
    body = text[len(prefix) :]
    content = message["content"]
    if content:
        body = body.lstrip()
    if not body.startswith(content + suffix):
        raise ValueError(OUTSIDE.format(text=body[:80]))
    return body[len(content) + len(suffix) :]
