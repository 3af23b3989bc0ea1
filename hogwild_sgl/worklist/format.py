"""How a worklist is put to a team of the worklist model."""

from __future__ import annotations

from hogwild_sgl.driver.commands import FinishedStep
from hogwild_sgl.prompts import WORKER_NAMES
from hogwild_sgl.prompts.formatting import Formatting
from hogwild_sgl.worklist import words

FORMATTING = Formatting(
    name="worklist",
    language="en",
    system="",
    user="{{problem}}",
    preamble=words.PREAMBLE,
    header_others=words.OTHERS,
    header_own=words.OWN,
    separator=words.BREAK,
    step_prefix=words.header("{{name}}", 0).replace("0", "{{number}}"),
    check_text=words.CHECK,
    finisher=words.header(WORKER_NAMES[0], words.MAX_STEPS) + words.ALL_DONE,
    finisher_stop=(".",),
    answer="text",
)


def last_line(step: FinishedStep) -> str | None:
    """Stops when a finished step is the last line; the answer is what it says."""
    _, found, rest = step.text.partition(words.ALL_DONE)
    return rest.strip().removesuffix(".") if found else None
