"""Answers: found in generated text, and compared.

Every function here takes text that was *generated*. Never pass a prompt or a problem:
problems contain boxes, numbers and code of their own, which would be taken for answers.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from decimal import Decimal, InvalidOperation
from functools import lru_cache

from hogwild_sgl.answers import equality
from hogwild_sgl.answers.spelling import clean, group_end, is_valid

_BOX = re.compile(r"\\f?boxed\s*(?=\{)")
_LABEL = re.compile(
    r"(?:\b(?:question|problem|task|part|answer|q)|问题|题目?|第)\s*(?:no\.?|number|#)?\s*(\d+)",
    re.IGNORECASE,
)
_WORDS = re.compile(r"[A-Za-z][A-Za-z' \-]{3,}|yes|no|true|false", re.IGNORECASE)
_FENCE = re.compile(
    r"^ {0,3}(`{3,})[ \t]*([^`\n]*)\n(.*?)^ {0,3}\1[ \t]*$", re.DOTALL | re.MULTILINE
)
_PYTHON = frozenset(["python", "python3", "py"])


def boxes(text: str) -> Iterator[tuple[int, int, str]]:
    """Each closed ``\\boxed{...}`` of the text as (start, end, inside as written), in order."""
    for match in _BOX.finditer(text):
        end = group_end(text, match.end())
        if end is not None:
            yield match.start(), end, text[match.end() + 1 : end - 1]


def extract_answer(text: str) -> str | None:
    """The last valid boxed answer of a generated text, cleaned; None if there is none.

    Braces may nest. A box that is empty, not closed, or says nothing (``nan``, dots, a
    question mark, a placeholder such as "your answer") is not valid, and the box before
    it counts. Cleaning removes units, degree signs, text commands, currency signs and
    thousands separators: ``\\boxed{1,234\\text{ cm}}`` gives ``1234``.
    """
    answers = [clean(inside) for _, _, inside in boxes(text)]
    valid = [answer for answer in answers if is_valid(answer)]
    return valid[-1] if valid else None


def split_answers(inside: str, count: int) -> list[str | None] | None:
    """A boxed list of ``count`` answers, split; None if it is no such list.

    Separators are semicolons, or else commas outside brackets. A comma followed by
    three digits may be a thousands separator: it is taken as one where that makes the
    number of answers come out right.
    """
    for pattern in (r";", r",\s+", r",", r",(?!\d{3}(?!\d))"):
        parts = _split(inside, pattern)
        if len(parts) == count:
            cleaned = [clean(part) for part in parts]
            return [part if is_valid(part) else None for part in cleaned]
    return None


def _split(text: str, separator: str) -> list[str]:
    depth, start, parts = 0, 0, []
    pattern = re.compile(separator)
    at = 0
    while at < len(text):
        if text[at] in "([{":
            depth += 1
        elif text[at] in ")]}":
            depth -= 1
        match = pattern.match(text, at) if depth == 0 else None
        if match:
            parts.append(text[start : match.start()])
            start = at = match.end()
        else:
            at += 1
    return [*parts, text[start:]]


def extract_answers(text: str, count: int) -> list[str | None]:
    """One answer per question for a task of ``count`` questions (GSM8K x5).

    Understood are a box that lists all answers in order, and boxes that follow a label
    such as "Question 3" or "Answer 3:". Where a question is answered more than once the
    last answer counts. Boxes without labels count only if there are exactly ``count`` of
    them and no list or label anywhere. Raises ``ValueError`` if ``count`` is below 1.
    """
    if count < 1:
        raise ValueError(f"a task has at least one question, got count={count}")
    answers: list[str | None] = [None] * count
    plain: list[str] = []
    understood, previous = False, 0
    for start, end, inside in boxes(text):
        between, previous = text[previous:start], end
        listed = split_answers(inside, count) if count > 1 else None
        if listed:
            answers = [new or old for new, old in zip(listed, answers, strict=True)]
            understood = True
        elif is_valid(answer := clean(inside)):
            labels = [int(number) for number in _LABEL.findall(between)]
            if labels and 1 <= labels[-1] <= count:
                answers[labels[-1] - 1] = answer
                understood = True
            else:
                plain.append(answer)
    if not understood and len(plain) == count:
        return list(plain)
    return answers


def gsm8k_gold(answer: str) -> str:
    """The number behind ``####`` in a GSM8K solution. Raises ``ValueError`` if missing."""
    _, mark, gold = answer.rpartition("####")
    if not mark or not gold.strip():
        raise ValueError(
            f"a GSM8K answer ends with '#### NUMBER', got {answer[-60:]!r}; check the data file"
        )
    return clean(gold)


def _number(text: str) -> Decimal | None:
    try:
        number = Decimal(text)
    except InvalidOperation:
        return None
    return number if number.is_finite() else None


def equal(one: str | None, other: str | None, tolerance: float = 0.0) -> bool:
    """Whether two answers are mathematically the same.

    Order of the two does not matter. No answer (None, nan, an empty text) equals
    nothing, not even itself. ``tolerance`` is absolute and applies to numbers. Words are
    compared as words, without case; everything else by math-verify, which may take up to
    `hogwild_sgl.answers.equality.SECONDS` and then counts as not equal. Safe in threads.
    """
    if one is None or other is None:
        return False
    left, right = clean(one), clean(other)
    if not (is_valid(left) and is_valid(right)):
        return False
    if left.replace(" ", "") == right.replace(" ", ""):
        return True
    if _WORDS.fullmatch(left) or _WORDS.fullmatch(right):
        return left.casefold() == right.casefold()
    a, b = _number(left), _number(right)
    if a is not None and b is not None:
        if a == b or abs(a - b) <= Decimal(tolerance):
            return True
        if "." not in left + right:
            return False
    return _by_math_verify(left, right, tolerance)


@lru_cache(maxsize=4096)
def _by_math_verify(left: str, right: str, tolerance: float) -> bool:
    return equality.equal(left, right, tolerance)


def majority(answers: Sequence[str | None]) -> str | None:
    """The answer given most often, equal ones counted together; the earliest wins a tie.

    Missing answers have no vote. None if nobody answered.
    """
    groups: list[tuple[str, int]] = []
    for answer in answers:
        if answer is None:
            continue
        for at, (first, votes) in enumerate(groups):
            if equal(first, answer):
                groups[at] = (first, votes + 1)
                break
        else:
            groups.append((answer, 1))
    return max(groups, key=lambda group: group[1])[0] if groups else None


def extract_code(text: str) -> str | None:
    """The last closed fenced block of Python in a generated text; None if there is none.

    A block counts if it parses as Python. Blocks marked as Python are preferred to
    blocks without a mark (which often hold sample output); blocks marked as another
    language never count.
    """
    marked, unmarked = [], []
    for match in _FENCE.finditer(text):
        language = match[2].strip().split(" ")[0].casefold()
        if language in _PYTHON or not language:
            code = match[3]
            if code.strip() and _parses(code):
                (marked if language else unmarked).append(code)
    found = marked or unmarked
    return found[-1] if found else None


def _parses(code: str) -> bool:
    try:
        ast.parse(code)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return True
