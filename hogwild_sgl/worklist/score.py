"""What a transcript says about how a team did on a worklist. Exact, no model involved."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from hogwild_sgl.transcript import Result, Step
from hogwild_sgl.worklist import words
from hogwild_sgl.worklist.task import Task

_REFERENCE = re.compile(rf"(?:{words.IS_WITH}|{words.WAITING}) (\w+)")


@dataclass(frozen=True)
class Score:
    """How one task went.

    items: in the task. finished: (passes, name) for each item at the first whole line on it,
    in order of time. right: items whose first line is right to the letter. repeated: whole
    lines on an item that had one, or that somebody else finished first. lines: whole lines on
    items. references: mentions of another worker. passes: sequential forward passes until the
    first last line, None if there was none. final_right: whether it is right to the letter.
    """

    items: int
    finished: tuple[tuple[int, str], ...]
    right: int
    repeated: int
    lines: int
    references: int
    passes: int | None
    final_right: bool

    @property
    def all_right(self) -> bool:
        return self.right == self.items


def score(task: Task, result: Result) -> Score:
    """Scores a run. Steps that end in the same pass count in the order of publishing."""
    finished: dict[str, tuple[int, bool]] = {}
    lines = references = 0
    passes, final_right = None, False
    for step in _published(result):
        text = _said(step)
        references += len(_REFERENCE.findall(text))
        name = (text.split() or [""])[0]
        item = task.item(name)
        if text.startswith(words.ALL_DONE):
            if passes is None:
                passes, final_right = step.end_pass, text == task.final()
        elif item is not None and text.startswith(f" {item.question}:"):
            lines += 1
            finished.setdefault(name, (step.end_pass, text == item.line()))
    return Score(
        items=len(task.items),
        finished=tuple((at, name) for name, (at, _) in finished.items()),
        right=sum(right for _, right in finished.values()),
        repeated=lines - len(finished),
        lines=lines,
        references=references,
        passes=passes,
        final_right=final_right,
    )


def _published(result: Result) -> Iterator[Step]:
    steps = [step for step in result.steps if step.kind == "step"]
    return iter(sorted(steps, key=lambda step: step.index))


def _said(step: Step) -> str:
    """The step's own text, without the answer to a redundancy check and the break."""
    text = step.text.removesuffix(words.BREAK)
    if words.CHECK in step.fed:
        text = re.sub(rf"^(?:{words.YES}|{words.NO}),", "", text)
    return text
