"""Turns of phrase by which the collaboration measures know what a sentence does.

English and Chinese. They are word lists, and as blunt as that: they miss what is said in
other words and now and then count a sentence that means something else. They are the
same for every program and layout, which is what makes comparisons fair.
"""

from __future__ import annotations

import re
from collections.abc import Sequence


def _either(english: Sequence[str], chinese: Sequence[str]) -> re.Pattern[str]:
    """Any of the phrases (regular expressions); English ones as whole words."""
    pattern = rf"\b(?:{'|'.join(english)})\b|{'|'.join(chinese)}"
    return re.compile(pattern, re.IGNORECASE)


# Others, without their names.
OTHERS = _either(
    (
        r"(?:the |an)?other (?:worker|assistant|solver|agent|thread|instance|one)s?",
        r"my (?:partner|teammate|colleague|co-?worker)s?",
        "teammates?",
        "each other",
        "the others",
    ),
    ("另一[位个名]", "其他人", "队友", "同伴", "对方", "搭档"),
)
CORRECTION = _either(
    (
        "mistakes?",
        "mistaken",
        "wrong(?:ly)?",
        "incorrect(?:ly)?",
        "errors?",
        "not (?:quite )?(?:right|correct|true)",
        r"mis(?:calculat|count|read)\w*",
        "overlooked",
        "forgot",
        "missed",
        "should (?:be|have been)",
        "instead of",
        "isn't (?:right|correct)",
        "(?:doesn't|does not) (?:hold|add up|work)",
        "disagree",
        r"contradict\w*",
        "typo",
        "slip",
    ),
    ("错了?", "不对", "不正确", "有误", "应该是", "应为", "漏了", "矛盾"),
)
# Signs that a writer holds to what was criticised.
DISPUTE = _either(
    (
        "i (?:still )?(?:disagree|stand by|maintain)",
        "i (?:was|am) right",
        r"my \w+ (?:was|is) (?:right|correct|fine)",
        "that(?:'s| is) not (?:wrong|a mistake|an error)",
        "no mistake",
        "was right after all",
        "is (?:in fact |actually )?correct as",
    ),
    ("我没错", "我没有错", "我是对的", "没有错误", "本来就是对的"),
)
IDLE = _either(
    (
        "i(?:'ll| will| am going to|'m going to)? (?:just )?wait(?:ing)?(?: for| until| here)?",
        "let me wait",
        "let(?:'s| us) wait",
        "waiting (?:for|on|until)",
        "stand(?:ing)? by",
        "nothing (?:left |more |else )?(?:for me )?to (?:do|add)",
        "i have nothing",
        "i(?:'m| am) (?:done|idle|waiting|finished)",
        "no further (?:work|action)",
        "hold(?:ing)? on for",
        r"i(?:'ll| will) let (?:\w+|you|them) (?:finish|continue)",
    ),
    ("我等", "等待", "等一等", "没有什么可", "无事可做", "没有别的要"),
)
_SENTENCE = re.compile(r"[^.!?。！？\n]+(?:[.!?。！？]+|\n|$)")
# Words, numbers, and each other sign of mathematics; Chinese characters one by one.
_TOKEN = re.compile(r"[A-Za-z']+|\d+(?:\.\d+)?|[一-鿿]|\\[A-Za-z]+|[^\sA-Za-z\d一-鿿]")


def sentences(text: str) -> list[str]:
    """The sentences of a text, without blank ones. A decimal point ends none."""
    guarded = re.sub(r"(?<=\d)\.(?=\d)", "\x00", text)
    found = [match[0].replace("\x00", ".").strip() for match in _SENTENCE.finditer(guarded)]
    return [sentence for sentence in found if sentence]


def tokens(text: str) -> list[str]:
    """The text in lower case, cut into words, numbers and signs."""
    return [match[0].lower() for match in _TOKEN.finditer(text)]


def mentions(text: str, names: Sequence[str]) -> list[str]:
    """The names that occur in the text as whole words, each as often as it occurs."""
    found = []
    for name in names:
        # \b does not separate a name from a Chinese character next to it.
        pattern = rf"(?<![A-Za-z0-9]){re.escape(name)}(?![A-Za-z0-9])"
        found += [name] * len(re.findall(pattern, text))
    return found
