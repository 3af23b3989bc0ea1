"""Everything that turns a problem and a team into text for the model.

A Formatting is a value: two runs with equal formatting see equal text. Built-in ones come
from :mod:`hogwild_sgl.prompts`; one's own can be written in a TOML file whose keys are the
fields below, over a built-in one named by ``base``:

    base = "maths-en"
    check_text = "Am I repeating somebody? (yes/no): "
    forbidden = ["<|endoftext|>"]

How a view reads with it (``combined`` layout):

    chat template(system, user) [thinking tag] preamble
    published steps, each beginning with separator and step prefix
    header_others, what the others are writing
    header_own, separator, step prefix, what this worker is writing

Every step begins with the separator: a step that ended by the rule leaves its blank line
as the token that is carried over, and in all other cases it is fed (see Driver).
"""

from __future__ import annotations

import dataclasses
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from os import PathLike
from typing import Any

from hogwild_sgl.prompts.templates import count_word, fill, join_names, placeholders

CHECK_TEXT = "Wait, am I doing redundant work? (yes/no): "
LANGUAGES = ("en", "zh")
THINKING = ("none", "template", "open")
ANSWER_KINDS = ("boxed", "code", "text")
MIN_WORKERS, MAX_WORKERS = 2, 16


@dataclass(frozen=True)
class Formatting:
    """The texts of one way to work together. Templates: see :mod:`hogwild_sgl.prompts.templates`.

    name: what results and reports call it. language: ``en`` or ``zh``, for lists of names
        and number words.
    system, user: the two chat messages; ``user`` contains ``{{problem}}``. examples: worked
        examples, put behind the system text; empty for none.
    preamble: opens the assistant's turn, before the first step: the section header of the
        published steps.
    header_others, header_own: section headers of the steps in progress. headers:
        ``isolated`` (prefilled alone) or ``prompt`` (prefilled after the prompt).
    separator: stands between steps. step_prefix: begins each step.
    openers: how each worker's first step goes on after the prefix: the first for worker 0,
        the others in turn for the rest; empty for none.
    check_text: the redundancy check. check_yes, check_no: how an answer may begin, in lower
        case.
    voice: begins what somebody outside the team says.
    finisher: ends the work and opens the answer. finisher_stop: texts that end the answer.
    answer: how an answer is taken from generated text: ``boxed``, ``code`` or ``text``.
    end: rule that ends a step: ``sentence`` (a paragraph) or ``none``.
    forbidden: texts, one token each, that workers cannot write. forbid_end_of_text: workers
        cannot end the turn either, so that they work until the budget or the stop rule ends
        it.
    thinking: where the model's thinking tag goes: ``template`` (the chat template opens
        it), ``open`` (thinking_open is put before the preamble) or ``none``. Where there
        is one, thinking_close is put before the finisher.
    chat_template_kwargs: passed to the chat template.
    solo: system text of a single writer, for the programs without a team.
    """

    name: str
    language: str
    system: str
    user: str
    preamble: str
    header_others: str
    header_own: str
    finisher: str
    examples: str = ""
    headers: str = "isolated"
    separator: str = "\n\n"
    step_prefix: str = "**{{name}} [{{number}}]:** "
    openers: tuple[str, ...] = ()
    check_text: str = CHECK_TEXT
    check_yes: tuple[str, ...] = ("yes",)
    check_no: tuple[str, ...] = ("no",)
    voice: str = "**Hint:** "
    finisher_stop: tuple[str, ...] = ()
    answer: str = "boxed"
    end: str = "sentence"
    forbidden: tuple[str, ...] = ()
    forbid_end_of_text: bool = True
    thinking: str = "none"
    thinking_open: str = "<think>\n"
    thinking_close: str = "\n</think>\n\n"
    chat_template_kwargs: Mapping[str, Any] = field(default_factory=dict)
    solo: str = ""

    def __post_init__(self) -> None:
        _one_of("language", self.language, LANGUAGES)
        _one_of("headers", self.headers, ("isolated", "prompt"))
        _one_of("end", self.end, ("sentence", "none"))
        _one_of("thinking", self.thinking, THINKING)
        _one_of("answer", self.answer, ANSWER_KINDS)
        if "problem" not in placeholders(self.user):
            raise ValueError("formatting: `user` does not contain {{problem}}")
        for name in ("step_prefix", "check_text", "finisher"):
            if not getattr(self, name):
                raise ValueError(f"formatting: `{name}` is empty")
        if set(self.check_yes) & set(self.check_no) or not (self.check_yes and self.check_no):
            raise ValueError("formatting: `check_yes` and `check_no` are not empty and differ")
        # Filled in once here, so that a wrong placeholder is found when it is written.
        self.messages("?", ("Alice", "Bob"))
        self.headers_for(("Alice", "Bob"))
        self.step_header("Alice", 1)
        for worker in range(2):
            self.opener(worker, ("Alice", "Bob"))

    def messages(self, problem: str, workers: Sequence[str]) -> list[dict[str, str]]:
        """The chat messages that open a team on ``problem``."""
        values = {**self._values(workers), "problem": problem}
        others = len(workers) - 1
        system = fill(self.system, values, others)
        if self.examples:
            system += "\n\n" + fill(self.examples, values, others)
        user = fill(self.user, values, others)
        roles = [{"role": "system", "content": system}] if system else []
        return [*roles, {"role": "user", "content": user}]

    def turn_start(self) -> str:
        """How the assistant's turn begins, before the first step."""
        return (self.thinking_open if self.thinking == "open" else "") + self.preamble

    def headers_for(self, workers: Sequence[str]) -> dict[str, str]:
        """The ``formatting`` part of the body that opens a team."""
        values, others = self._values(workers), len(workers) - 1
        return {
            "header_others": fill(self.header_others, values, others),
            "header_own": fill(self.header_own, values, others),
            "headers": self.headers,
        }

    def step_header(self, name: str, number: int) -> str:
        return fill(self.step_prefix, {"name": name, "number": str(number)}, 0)

    def opener(self, worker: int, workers: Sequence[str]) -> str:
        """How the worker's first step goes on; empty where there are no openers."""
        if not self.openers:
            return ""
        first, *rest = self.openers
        chosen = first if worker == 0 or not rest else rest[(worker - 1) % len(rest)]
        values = {**self._values(workers), "name": workers[worker]}
        return fill(chosen, values, len(workers) - 1)

    def voice_text(self, text: str) -> str:
        """``text`` as a voice from outside stands in the history."""
        return self.separator + self.voice + text

    def finish_text(self, finisher: str | None = None, *, written: str = "") -> str:
        """What the finisher, and each probe, is fed before it writes the answer.

        finisher: other words than the formatting's own. written: what it follows; where
        that has closed the thinking tag, it is not closed again.
        """
        closes = self.thinking != "none" and self.thinking_close.strip() not in written
        words = self.finisher if finisher is None else finisher
        return (self.thinking_close if closes else self.separator) + words

    def check_answer(self, text: str) -> str:
        """``yes``, ``no`` or ``unclear``: how the text written after a check begins."""
        start = text.lstrip(" \t\n*_`\"'(").lower()
        words = [(word, "yes") for word in self.check_yes]
        words += [(word, "no") for word in self.check_no]
        for word, answer in sorted(words, key=lambda pair: -len(pair[0])):
            follow = start[len(word) : len(word) + 1]
            # "no" does not begin "now"; Chinese has no spaces between words.
            if start.startswith(word) and not (word[-1].isascii() and follow.isalnum()):
                return answer
        return "unclear"

    def replace(self, **changes: Any) -> Formatting:
        """A formatting with some fields changed. ValueError names an unknown field."""
        known = {f.name for f in dataclasses.fields(self)}
        if unknown := sorted(set(changes) - known):
            raise ValueError(f"formatting has no field {unknown}; it has {sorted(known)}")
        for name, value in changes.items():
            if isinstance(value, list):
                changes[name] = tuple(value)
        return dataclasses.replace(self, **changes)

    def to_dict(self) -> dict[str, Any]:
        """All fields, for a result's settings."""
        return dataclasses.asdict(self)

    def _values(self, workers: Sequence[str]) -> dict[str, str]:
        return {
            "names": join_names(workers, self.language),
            "n": count_word(len(workers), self.language),
            "first": workers[0],
            "second": workers[min(1, len(workers) - 1)],
        }


def load_formatting(path: str | PathLike[str]) -> Formatting:
    """Reads a formatting from a TOML file. ValueError says what is wrong with it."""
    from hogwild_sgl.prompts import builtin

    with open(path, "rb") as file:
        try:
            data = tomllib.load(file)
        except tomllib.TOMLDecodeError as error:
            raise ValueError(f"{path}: not TOML: {error}") from error
    base = data.pop("base", None)
    data.setdefault("name", str(path))
    try:
        if base is not None:
            return builtin(base).replace(**data)
        wrong = sorted(set(data) - {f.name for f in dataclasses.fields(Formatting)})
        if wrong:
            raise ValueError(f"formatting has no field {wrong}")
        lists = {key: tuple(v) if isinstance(v, list) else v for key, v in data.items()}
        return Formatting(**lists)
    except (TypeError, ValueError) as error:
        hint = "" if base else ' (without `base = "maths-en"` or the like every text is needed)'
        raise ValueError(f"{path}: {error}{hint}") from error


def check_workers(workers: Sequence[str]) -> tuple[str, ...]:
    """The names as a tuple. ValueError unless there are 2 to 16 different ones."""
    names = tuple(workers)
    if not MIN_WORKERS <= len(names) <= MAX_WORKERS:
        raise ValueError(f"a team has {MIN_WORKERS} to {MAX_WORKERS} workers, got {len(names)}")
    if len(set(names)) != len(names) or not all(names):
        raise ValueError(f"workers have different names that are not empty, got {list(names)}")
    return names


def _one_of(name: str, value: str, allowed: Sequence[str]) -> None:
    if value not in allowed:
        raise ValueError(f"formatting: `{name}` is one of {list(allowed)}, got {value!r}")
