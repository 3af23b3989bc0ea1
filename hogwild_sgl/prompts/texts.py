"""The shape of one language's prompt texts; all of them are templates."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields

TASKS = ("maths", "code", "open")


@dataclass(frozen=True)
class Texts:
    """Texts of one language.

    rules: the workspace and how to work together in it. task: what this kind of problem
        asks for, by task. user: the user's message. examples: a worked example, by task.
    past, others, own: section headers. openers: first words of the first worker, then of
        the others in turn.
    check, yes, no: the redundancy check and how its answers begin.
    voice: begins what somebody outside the team says.
    finisher: ends the work and opens the answer, by task.
    solo: system text of a single writer, by task.
    plan, point, merge: skeleton of thought. ``{{count}}`` points at most; ``{{plan}}``,
        ``{{point}}``; ``{{parts}}``.
    round: agents that exchange finished texts: ``{{texts}}`` of the others.
    judge: one finisher over several finished attempts, ``{{texts}}``.
    attempt: heading of one text in a list, ``{{name}}``.
    """

    rules: str
    task: Mapping[str, str]
    user: str
    examples: Mapping[str, str]
    past: str
    others: str
    own: str
    openers: tuple[str, ...]
    check: str
    yes: tuple[str, ...]
    no: tuple[str, ...]
    voice: str
    finisher: Mapping[str, str]
    solo: Mapping[str, str]
    plan: str
    point: str
    merge: str
    round: str
    judge: str
    attempt: str

    def __post_init__(self) -> None:
        for f in fields(self):
            value = getattr(self, f.name)
            if not value:
                raise ValueError(f"the prompt text `{f.name}` is empty")
            if isinstance(value, Mapping) and set(value) != set(TASKS):
                raise ValueError(f"the prompt text `{f.name}` is not given for {TASKS}")
