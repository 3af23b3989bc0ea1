"""Placeholders in prompt texts, and wording that fits the number of workers.

A template is plain text with ``{{...}}`` in it:

    {{names}}               Alice, Bob and Carol
    {{n}}                   three
    {{first}} {{second}}    the first two names
    {{name}} {{number}}     one worker and the number of its step
    {{problem}}             the problem
    {{one|many}}            ``one`` if there is one *other* worker, ``many`` if more

Single braces mean nothing, so LaTeX can be written as it is. What is filled in is never
searched for placeholders again: a problem may contain anything.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

_PLACEHOLDER = re.compile(r"\{\{([^{}]*)\}\}")
_ENGLISH = (
    "one two three four five six seven eight nine ten eleven twelve thirteen fourteen "
    "fifteen sixteen"
).split()
_CHINESE = "一 两 三 四 五 六 七 八 九 十 十一 十二 十三 十四 十五 十六".split()


def join_names(names: Sequence[str], language: str) -> str:
    """Names as a list in a sentence of that language."""
    if language == "zh":
        comma, last = "、", "和"
    else:
        comma, last = ", ", " and "
    *head, tail = names
    return comma.join(head) + last + tail if head else tail


def count_word(number: int, language: str) -> str:
    words = _CHINESE if language == "zh" else _ENGLISH
    return words[number - 1] if 1 <= number <= len(words) else str(number)


def fill(template: str, values: dict[str, str], others: int) -> str:
    """``template`` with its placeholders filled in.

    others: how many other workers there are, for ``{{one|many}}``.
    Raises ValueError for a placeholder that is not in ``values``, listing those that are.
    """

    def replace(match: re.Match[str]) -> str:
        inside = match[1]
        if "|" in inside:
            one, _, many = inside.partition("|")
            return one if others == 1 else many
        if inside not in values:
            known = ", ".join("{{" + name + "}}" for name in values)
            raise ValueError(f"unknown placeholder {match[0]} in a prompt text; known: {known}")
        return values[inside]

    return _PLACEHOLDER.sub(replace, template)


def placeholders(template: str) -> set[str]:
    """Names of the placeholders in ``template``, wording by number left out."""
    return {inside for inside in _PLACEHOLDER.findall(template) if "|" not in inside}
