"""Stop rules, and how an answer is taken from what a team wrote.

Only generated text is searched (and, for a finisher, its own opening words): problems
contain boxes and code of their own.
"""

from __future__ import annotations

from hogwild_sgl.answers.extract import extract_answer, extract_code
from hogwild_sgl.driver.commands import FinishedStep, StopRule
from hogwild_sgl.prompts.formatting import Formatting


def boxed_answer(step: FinishedStep) -> str | None:
    """Stops when a finished step holds a valid ``\\boxed{...}``."""
    return extract_answer(step.text)


def code_answer(step: FinishedStep) -> str | None:
    """Stops when a finished step holds a whole block of Python."""
    return extract_code(step.text)


def stop_rule(formatting: Formatting) -> StopRule | None:
    """The stop rule that fits a formatting; None for open questions."""
    return {"boxed": boxed_answer, "code": code_answer, "text": None}[formatting.answer]


def finished_answer(formatting: Formatting, fed: str, text: str) -> str | None:
    """The answer a finisher gave: it was fed ``fed``, and wrote ``text`` after it."""
    if formatting.answer == "boxed":
        return extract_answer(fed + text)
    if formatting.answer == "code":
        # The stop text that closes the block has been cut off.
        return extract_code(f"{fed}{text}\n```")
    return text.strip() or None


def written_answer(formatting: Formatting, text: str) -> str | None:
    """The answer in a whole text that a single writer wrote."""
    if formatting.answer == "boxed":
        return extract_answer(text)
    if formatting.answer == "code":
        return extract_code(text)
    return text.strip() or None
