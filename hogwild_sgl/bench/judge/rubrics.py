"""What the judge is asked. A change of any word here needs a new version."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hogwild_sgl.bench.report.overlap import written_text
from hogwild_sgl.transcript import Result, Step

LOWEST, HIGHEST = 1, 6

_COLLABORATION = """\
You judge how well several writers worked together on one problem. They wrote at the same \
time; for each step you see who wrote it and during which forward passes of the model, so \
steps whose passes overlap were written side by side. You judge the teamwork only. Whether \
the answer is right, how long the text is, and how politely it is put do not matter.

Give one whole number from 1 to 6:

1  Nobody takes notice of anybody. Each text would be the same if the others did not exist.
2  Others are named or addressed, but nothing follows from it: the work is done twice.
3  There is some sharing out or some use of another's result, but most of the work is still \
done twice or side by side.
4  The work is shared out and the shares are mostly kept. Results are taken over, with gaps: \
a duplicated part, a question nobody answers, an error nobody picks up.
5  The writers build on each other throughout: parts are shared out and kept, results used, \
questions answered, errors found and mended. Small losses only.
6  One mind with several pens: besides all of 5, the plan is changed together when the work \
asks for it, and nearly every step is new and rests on what the others had just written."""

_ANSWER = """\
You judge the final answer that a group of writers gave to an open question. How they got \
there does not matter, nor does its length as such.

Give one whole number from 1 to 6:

1  No answer, or one that does not concern the question.
2  Touches the question, but is mostly empty, wrong or incoherent.
3  A usable thought or two, with large gaps or contradictions.
4  Answers the question soundly; misses some points that a careful person would expect.
5  Sound, complete and well ordered, with small weaknesses.
6  As good as a thoughtful expert would give in the same space."""

_FORM = """\
First give your reasons in at most five sentences, naming steps or passages. Then end with a \
line of its own: Score: N"""


@dataclass(frozen=True)
class Rubric:
    """name and version are stored with every score; scores of other versions are not mixed."""

    name: str
    version: int
    text: str

    def messages(self, result: Result, max_chars: int) -> list[dict[str, str]]:
        """The chat messages that put one run to the judge.

        Program and layout are not named. A transcript longer than ``max_chars`` characters
        loses steps in the middle, and says so.
        """
        if self.name == "answer":
            # A run that a worker's answer ended has no finisher's text.
            final = result.final_text.strip() or result.answer or "(none)"
            shown = f"Final answer:\n\n{final}"
        else:
            shown = f"What was written:\n\n{render(result.steps, max_chars)}"
        return [
            {"role": "system", "content": f"{self.text}\n\n{_FORM}"},
            {"role": "user", "content": f"The problem:\n\n{result.problem}\n\n{shown}"},
        ]


RUBRICS = {
    rubric.name: rubric
    for rubric in (Rubric("collaboration", 1, _COLLABORATION), Rubric("answer", 1, _ANSWER))
}


def _line(step: Step) -> str:
    number = "" if step.number is None else f" [{step.number}]"
    who = "A voice from outside" if step.worker is None else f"{step.name}{number}"
    return f"{who} (passes {step.start_pass} to {step.end_pass}): {written_text(step).strip()}"


def render(steps: Sequence[Step], max_chars: int) -> str:
    """The published steps in the order in which they ended, one paragraph each."""
    lines = [_line(step) for step in steps if step.kind in ("step", "said")]
    if sum(map(len, lines)) <= max_chars:
        return "\n\n".join(lines)
    head: list[str] = []
    tail: list[str] = []
    rest, used = list(lines), 0
    # From both ends in turn: how the work was shared out, and what came of it.
    while rest and used + len(rest[0 if len(head) <= len(tail) else -1]) <= max_chars:
        line = rest.pop(0) if len(head) <= len(tail) else rest.pop()
        (head if len(head) <= len(tail) else tail).append(line)
        used += len(line)
    return "\n\n".join([*head, f"[{len(rest)} steps left out here]", *reversed(tail)])
