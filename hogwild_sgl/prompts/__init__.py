"""Prompts: ready formattings and the prompt of a team as an SGLang expression.

    s += prompts.collaboration(problem, workers=("Alice", "Bob"))

Small models are put off by long rules; for them write a short formatting of your own, see
:func:`hogwild_sgl.prompts.formatting.load_formatting`.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from hogwild_sgl.prompts.chinese import CHINESE
from hogwild_sgl.prompts.english import ENGLISH
from hogwild_sgl.prompts.formatting import (
    LANGUAGES,
    MAX_WORKERS,
    Formatting,
    check_workers,
    load_formatting,
)
from hogwild_sgl.prompts.texts import TASKS, Texts

if TYPE_CHECKING:
    from sglang.lang.ir import SglExpr

_TEXTS = {"en": ENGLISH, "zh": CHINESE}
_STOP = {"maths": ("\n",), "code": ("```",), "open": ()}
_ANSWER = {"maths": "boxed", "code": "code", "open": "text"}
WORKER_NAMES = (
    *("Alice", "Bob", "Carol", "David", "Emma", "Frank", "Grace", "Henry"),
    *("Iris", "Jack", "Karen", "Leo", "Maria", "Nora", "Oscar", "Paula"),
)


def texts(language: str) -> Texts:
    """The prompt texts of a language. ValueError lists the languages there are."""
    if language not in _TEXTS:
        raise ValueError(f"no prompts in {language!r}; there are prompts in {list(LANGUAGES)}")
    return _TEXTS[language]


def formatting(
    task: str = "maths",
    language: str = "en",
    *,
    examples: bool = False,
    openers: bool = True,
    thinking: str = "none",
) -> Formatting:
    """A built-in formatting. task: maths, code or open. examples: with a worked example.
    openers: workers' first steps begin with given words. thinking: see Formatting."""
    if task not in TASKS:
        raise ValueError(f"no prompts for {task!r}; there are prompts for {list(TASKS)}")
    chosen = texts(language)
    return Formatting(
        name=f"{task}-{language}",
        language=language,
        system=f"{chosen.rules}\n\n{chosen.task[task]}",
        user=chosen.user,
        examples=chosen.examples[task] if examples else "",
        preamble=chosen.past,
        header_others=chosen.others,
        header_own=chosen.own,
        openers=chosen.openers if openers else (),
        check_text=chosen.check,
        check_yes=chosen.yes,
        check_no=chosen.no,
        voice=chosen.voice,
        finisher=chosen.finisher[task],
        finisher_stop=_STOP[task],
        answer=_ANSWER[task],
        thinking=thinking,
        solo=chosen.solo[task],
    )


def builtin(name: str) -> Formatting:
    """A built-in formatting by name, ``maths-en`` to ``open-zh``."""
    task, _, language = name.partition("-")
    if task not in TASKS or language not in LANGUAGES:
        names = [f"{task}-{language}" for task in TASKS for language in LANGUAGES]
        raise ValueError(f"no formatting named {name!r}; there are {names}, or give a TOML file")
    return formatting(task, language)


def find_formatting(name: str) -> Formatting:
    """A built-in formatting by name, or one's own by the path of a ``.toml`` file."""
    return load_formatting(name) if Path(name).suffix == ".toml" else builtin(name)


def worker_names(count: int) -> tuple[str, ...]:
    """Names for a team of ``count`` workers, Alice and Bob first."""
    return check_workers(WORKER_NAMES[:count] if count <= MAX_WORKERS else [""] * count)


def collaboration(
    problem: str,
    workers: Sequence[str] = ("Alice", "Bob"),
    using: Formatting | None = None,
) -> SglExpr:
    """The team's prompt, to append to a state before ``hogwild.fork``.

    It is made of chat roles, which go through the model's own chat template.
    """
    import sglang as sgl
    from sglang.lang.ir import SglExprList

    roles = {"system": sgl.system, "user": sgl.user}
    messages = (using or formatting()).messages(problem, check_workers(workers))
    return SglExprList([roles[message["role"]](message["content"]) for message in messages])
