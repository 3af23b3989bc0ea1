"""The step-end rule: a step is about a paragraph (the paper's section 3.3)."""

from __future__ import annotations

BREAK = "\n\n"

# . ? ! and their kin: ellipses and doubled marks, CJK and full-width forms, Arabic,
# Devanagari, Armenian, Ethiopic, Tibetan, Burmese, Khmer, Greek.
SENTENCE_MARKS = frozenset(".?!…⋯‼⁇⁈⁉。．？！｡﹒﹖﹗؟۔।॥։՞՜።፧།༎။។៕\u037e⸮")


def _inside_a_block(text: str) -> bool:
    fences = sum(line.lstrip().startswith(("```", "~~~")) for line in text.split("\n"))
    return fences % 2 == 1 or text.count("$$") % 2 == 1


def ends_step(text: str, newest: str) -> bool:
    """Does a step whose text ends in ``newest``, its newest token, end there?

    text: the whole step so far, newest token included. It ends when the newest token
    contains a blank line, the text before that ends in a sentence mark, and no code
    fence or ``$$`` block is open there.
    """
    at = newest.find(BREAK)
    if at < 0:
        return False
    before = text[: len(text) - len(newest) + at]
    return bool(before) and before[-1] in SENTENCE_MARKS and not _inside_a_block(before)
