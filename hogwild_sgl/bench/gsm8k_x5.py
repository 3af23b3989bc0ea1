"""GSM8K x5: five grade-school questions in one task, a grade for each (openai/gsm8k).

Consecutive rows form a task, in the file's order; rows left over at the end are not
used. The task can be split, but only if the workers agree who does what.
"""

from __future__ import annotations

from collections.abc import Sequence

from hogwild_sgl.answers.extract import equal, extract_answers, gsm8k_gold, split_answers
from hogwild_sgl.bench.suite.command import benchmark
from hogwild_sgl.bench.suite.data import Example, HubSource, Row, column, row_ids
from hogwild_sgl.bench.suite.task import Given, Score, Task
from hogwild_sgl.errors import UserError

QUESTIONS = 5


def problem_text(questions: Sequence[str]) -> str:
    """The task's text, which also says how the answers are to be written."""
    numbered = [f"Question {n}: {text.strip()}" for n, text in enumerate(questions, 1)]
    places = "; ".join(f"answer {n}" for n in range(1, len(questions) + 1))
    return "\n\n".join(
        [
            f"Here are {len(questions)} questions that have nothing to do with each other. "
            "Answer all of them.",
            *numbered,
            "Each answer is one number. At the end put all answers into one box, in the order of "
            f"the questions and with semicolons between them: \\boxed{{{places}}}",
        ]
    )


def examples(rows: Sequence[Row]) -> list[Example]:
    """Columns ``question`` and ``answer`` (the number after ``####``)."""
    if len(rows) < QUESTIONS:
        raise UserError(
            f"GSM8K x{QUESTIONS} needs at least {QUESTIONS} rows, got {len(rows)}", "Add rows."
        )
    ids, made = row_ids(rows), []
    for start in range(0, len(rows) - QUESTIONS + 1, QUESTIONS):
        group = range(start, start + QUESTIONS)
        try:
            gold = [gsm8k_gold(str(column(rows[i], ("answer",), f"row {ids[i]}"))) for i in group]
        except ValueError as error:
            raise UserError(f"Rows {start + 1} to {start + QUESTIONS}: {error}") from error
        questions = [str(column(rows[i], ("question",), f"row {ids[i]}")) for i in group]
        name = f"{ids[start]}..{ids[group[-1]]}"
        made.append(Example(name, problem_text(questions), gold))
    return made


def score(example: Example, given: Given) -> Score:
    """A grade per question; the task's value is their mean."""
    count = len(example.gold)
    # The finisher's words open a box, which the model's text closes.
    answers = extract_answers("\\boxed{" + given.text, count)
    if not any(answers) and given.answer:
        # The answer of a run without a finisher, a vote for instance.
        answers = split_answers(given.answer, count) or answers
    parts = tuple(
        float(equal(answer, gold)) for answer, gold in zip(answers, example.gold, strict=True)
    )
    detail = "; ".join(str(answer) for answer in answers)
    return Score(sum(parts) / len(parts), parts, f"{detail} for {'; '.join(example.gold)}")


TASK = Task(
    name="gsm8k_x5",
    title="GSM8K x5",
    prompts="maths",
    examples=examples,
    columns="`question`, and `answer` ending in `#### NUMBER`",
    score=score,
    hub=HubSource("openai/gsm8k", "main", "test"),
    budgets=(256, 512, 1024, 2048, 4096),
    finisher_tokens=128,
    early_stop=False,
    settings={"questions_per_task": QUESTIONS},
)

app = benchmark(TASK)

if __name__ == "__main__":
    app()
