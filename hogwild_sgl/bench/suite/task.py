"""What a benchmark is: where its problems come from, how it is prompted and graded."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from hogwild_sgl.answers.extract import equal
from hogwild_sgl.bench.suite.data import Example, HubSource, Row, hub_rows, local_rows
from hogwild_sgl.errors import UserError
from hogwild_sgl.prompts.texts import TASKS


@dataclass(frozen=True)
class Given:
    """An answer as a program gave it at one budget.

    answer: as the program extracted it, None if it found none.
    text: what the model wrote after the finisher's words, from which it was extracted.
    """

    answer: str | None
    text: str


@dataclass(frozen=True)
class Score:
    """A grade: 0 to 1, or None where nothing can be graded (open questions).

    parts: one grade per question, where a task has several. detail: why, in a few words.
    """

    value: float | None
    parts: tuple[float, ...] = ()
    detail: str = ""

    def __post_init__(self) -> None:
        for grade in (self.value, *self.parts):
            if grade is not None and not 0 <= grade <= 1:
                raise ValueError(f"a grade is between 0 and 1, got {grade}")


Curve = Mapping[int, float]


@dataclass(frozen=True)
class Task:
    """A benchmark.

    name: of the module and of result folders. title: for reports.
    prompts: which prompts it uses (``maths``, ``code``, ``open``).
    columns: what a row has, for people who bring their own file.
    hub: where its rows are on the hub; None if it has none there.
    examples: makes examples of rows. score: grades one answer of one example; called from
        several threads at once.
    budgets: default list of budgets in forward passes.
    published: values from the literature by label, as accuracy in percent by budget, drawn
        into reports; source: where they are from.
    finisher_tokens: most tokens of a final answer.
    early_stop: whether an answer in a finished step ends the run; not where a task has
        several questions, since the first box answers only one.
    settings: options of the benchmark itself, written into each run's settings; notes:
        likewise, but they may differ when a run is resumed.
    builtin: rows that come with the benchmark.
    """

    name: str
    title: str
    prompts: str
    examples: Callable[[Sequence[Row]], list[Example]]
    score: Callable[[Example, Given], Score]
    columns: str = "`question`, `answer`"
    hub: HubSource | None = None
    budgets: tuple[int, ...] = (1024, 2048, 4096, 8192)
    finisher_tokens: int = 64
    early_stop: bool = True
    published: Mapping[str, Curve] = field(default_factory=dict)
    source: str = ""
    settings: Mapping[str, Any] = field(default_factory=dict)
    notes: Mapping[str, Any] = field(default_factory=dict)
    builtin: tuple[Row, ...] = ()

    def __post_init__(self) -> None:
        if self.prompts not in TASKS:
            raise ValueError(f"prompts is one of {TASKS}, got {self.prompts!r}")

    @property
    def origin(self) -> str:
        """Where the problems come from unless a file is given, in words."""
        if self.builtin:
            return f"{len(self.builtin)} built in"
        return f"{self.hub} on the Hugging Face hub" if self.hub else "none of its own"

    def load(self, data: str | None, limit: int | None = None) -> list[Example]:
        """The examples of a local file, or (``data`` None) of the hub or built in.

        The first ``limit`` of them. `UserError` if two have the same id or none is there.
        """
        if limit is not None and limit < 1:
            raise UserError(
                f"--limit must be at least 1, got {limit}", "Leave it out for all problems."
            )
        if data is not None:
            rows: Sequence[Row] = local_rows(data)
        elif self.builtin:
            rows = self.builtin
        elif self.hub is not None:
            rows = hub_rows(self.hub)
        else:
            raise UserError(f"{self.title} has no data of its own.", "Give a file: --data FILE.")
        examples = self.examples(rows)
        if not examples:
            raise UserError(
                f"{self.title}: no problems in {len(rows)} rows.", "Is it the right file?"
            )
        if len({example.id for example in examples}) != len(examples):
            raise UserError(
                f"{self.title}: ids are not unique.", "Give each row an `id` of its own."
            )
        return examples[:limit]


def score_single(example: Example, given: Given) -> Score:
    """Grades one mathematical answer against ``example.gold``."""
    if given.answer is None:
        return Score(0.0, detail="no answer")
    right = equal(given.answer, str(example.gold))
    return Score(float(right), detail=f"{given.answer} for {example.gold}")
