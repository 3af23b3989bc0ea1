"""One spelling for one answer: strips what carries no mathematics.

`clean` takes the inside of a box, or a gold answer, and removes dollar signs, text
commands, degree signs, units, currency and thousands separators. What is left is still
LaTeX; whether two answers are equal is decided in `hogwild_sgl.answers.equality`.
"""

from __future__ import annotations

import re

_WRAPPERS = (
    r"text|textbf|textit|textrm|texttt|mathrm|mathbf|mathit|mathsf|boldsymbol|bm|mbox|boxed|fbox"
)
_UNWRAP = re.compile(rf"\\(?:{_WRAPPERS})\s*\{{")
_UNIT_GROUP = re.compile(
    r"(?<![_^])\s*\\(?:text|textrm|mathrm|mbox|textbf|operatorname)\s*\{([^{}]*)\}"
    r"\s*(?:\^\s*(?:\{\s*-?\d\s*\}|\d))?$"
)
# Words that show that a trailing text is part of the answer and no unit.
_NO_UNIT = frozenset(
    "if for when and or where otherwise is mod modulo any all even odd base not with in to of or "
    "million billion thousand hundred dozen pi e i d".split()
)
_SHORT_UNITS = frozenset(
    "cm mm km nm kg mg lb oz ft in yd mi hr ms mL ml kW Hz cm² m² km² m³ cm³ km/h m/s".split()
)
_NUMBER = r"[-+]?(?:\d[\d,]*(?:\.\d+)?|\.\d+)(?:/\d+)?"
_NUMBER_AND_WORDS = re.compile(rf"({_NUMBER})\s+([A-Za-z²³/ ]+)$")
_THOUSANDS = re.compile(r"[-+]?\d{1,3}(?:,\d{3})+(?:\.\d+)?$")
_DEGREES = re.compile(
    r"\s*(?:\^\s*\{?\s*\\circ\s*\}?|\\degree|°)\s*(?:[CF]\b|\\text\{\s*[CF]\s*\})?"
)
_SPACES = re.compile(
    r"\\[,;:!>]|\\quad|\\qquad|\\displaystyle|\\left(?![a-zA-Z])|\\right(?![a-zA-Z])"
)
_CURRENCY = re.compile(r"^([-+]?)\s*(?:\\\$|[$€£¥￥₹])\s*(?=[-+\d.\\])")
_PLACEHOLDERS = frozenset(
    ["nan", "answer", "your answer", "final answer", "your final answer", "the answer"]
)


def group_end(text: str, start: int) -> int | None:
    """Index just behind the brace that closes the one at ``text[start]``; None if none does.

    Escaped braces (``\\{``) are text and do not nest.
    """
    depth, at = 0, start
    while at < len(text):
        char = text[at]
        if char == "\\":
            at += 2
            continue
        if char == "{":
            depth += 1
        elif char == "}":
            depth -= 1
            if depth == 0:
                return at + 1
        at += 1
    return None


def _unwrapped(text: str) -> str:
    """The inside of a command or a brace group that spans the whole text."""
    match = _UNWRAP.match(text)
    start = match.end() - 1 if match else (0 if text.startswith("{") else None)
    if start is not None and group_end(text, start) == len(text):
        return text[start + 1 : -1]
    for opening, closing in ((r"\(", r"\)"), (r"\[", r"\]")):
        if text.startswith(opening) and text.endswith(closing):
            return text[2:-2]
    choice = re.fullmatch(r"\(([A-Z])\)|([A-Z])\)", text)
    return (choice[1] or choice[2]) if choice else text


def _without_unit(text: str) -> str:
    group = _UNIT_GROUP.search(text)
    number = text[: group.start()] if group else ""
    # "6 \text{ hours and } 5 \text{ minutes}" has units within, which are kept together.
    if group and re.search(r"\d|\\[a-z]", number) and "\\text" not in number:
        words = re.findall(r"[A-Za-z]+", group[1])
        if len(words) <= 5 and not _NO_UNIT.intersection(words):
            if words[:1] == ["percent"]:
                return number + "\\%"
            return number
    plain = _NUMBER_AND_WORDS.fullmatch(text)
    if plain:
        words = plain[2].split()
        if words in (["percent"], ["per", "cent"]):
            return plain[1] + "\\%"
        unit = all(len(word) > 2 or word in _SHORT_UNITS or word == "of" for word in words)
        if unit and not _NO_UNIT.difference({"of", "in"}).intersection(words):
            return plain[1]
    return text


def _once(text: str) -> str:
    text = text.replace("~", " ").replace("\\ ", " ").replace("−", "-")
    text = _CURRENCY.sub(r"\1", text.strip())
    text = re.sub(r"(?<!\\)\$", "", text)
    text = text.replace("{,}", ",").replace(",\\!", ",")
    text = re.sub(r"(?<=\d)\\,(?=\d{3})", "", text)
    text = _SPACES.sub(lambda m: " " if m[0] in ("\\quad", "\\qquad") else "", text)
    text = _DEGREES.sub("", text).strip()
    text = re.sub(r"(?:(?<!\.)\.|[,;。，；])$", "", text).strip()
    text = re.sub(r"(?<!\\)%$", r"\\%", text)
    text = _without_unit(_unwrapped(text)).strip()
    return text.replace(",", "") if _THOUSANDS.fullmatch(text) else text


def clean(answer: str) -> str:
    """``answer`` without wrapping, units, degree signs, currency and thousands separators."""
    while (shorter := _once(answer)) != answer:
        answer = shorter
    return answer


def is_valid(cleaned: str) -> bool:
    """Whether a cleaned text says something: nan, dots, blanks and placeholders do not."""
    if re.sub(r"\\(?:l|c)?dots|[.…?_\s\-]", "", cleaned) == "":
        return False
    return cleaned.strip().casefold() not in _PLACEHOLDERS
