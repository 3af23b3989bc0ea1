"""Open questions: no right answers, so that teamwork itself is looked at.

The report compares the collaboration measures; `python -m bench.judge` adds scores from
1 to 6 for the teamwork (``--rubric collaboration``) or the answer (``--rubric answer``).
Own questions: a JSON Lines file with a column ``question``.
"""

from __future__ import annotations

from collections.abc import Sequence

from hogwild_sgl.bench.suite.command import benchmark
from hogwild_sgl.bench.suite.data import Example, Row, column, examples_from
from hogwild_sgl.bench.suite.task import Given, Score, Task

QUESTIONS = (
    "A small island has one doctor, who retires in two years. How should the island prepare?",
    "A school wants pupils to keep their phones away all day. What would follow, good and bad?",
    "Plan a week of dinners for five people, one of whom eats no gluten and one no meat, with two "
    "evenings on which nobody has time to cook.",
    "A library has money either for longer hours or for more books. How should it decide?",
    "Explain to a ten-year-old why the moon looks different every night, and how one could check "
    "it with things from the kitchen.",
    "A city wants half of all trips to be made by bicycle within ten years. Draw up a plan and "
    "name what could make it fail.",
    "Two neighbours quarrel over a tree on their border. Write what each of them might say to a "
    "mediator, and a solution both could accept.",
    "Compare wood, concrete and steel for a five-storey apartment house.",
    "Design a board game for two to four players that takes twenty minutes and uses only a pack "
    "of cards and ten coins.",
    "A bakery sells out by noon on some days and throws bread away on others. What can it do?",
    "Which animals cope best with life in cities, and what do they have in common?",
    "Write the outline of a short story in which the last person to speak a language meets "
    "someone who has learnt it from recordings.",
    "A team of eight works in four time zones. How should it decide things, and how often meet?",
    "What should a town do with a closed railway line that runs through its middle?",
    "How could one find out, without asking anybody, which of two cafés in a street is doing "
    "better?",
    "Make a packing list for three days of hiking in changeable weather, with a reason for each "
    "item, for somebody who has never done it.",
    "What are the strongest arguments for and against lowering the voting age to sixteen?",
    "A museum of local history has few visitors. Suggest one change that costs nothing, one that "
    "costs little, and one that costs a lot.",
    "Explain inflation, unemployment and interest rates and how they affect each other, each with "
    "an example from daily life.",
    "Lay out a small vegetable garden of four by three metres for the whole year.",
    "How would daily life change if days had thirty hours?",
    "A start-up has money for six months. Which decisions should it take now, and which later?",
    "Describe three ways to sort a thousand paper files into alphabetical order with four people, "
    "and compare how long they take.",
    "What makes a good apology? Give an example of a bad one and mend it.",
)


def _example(name: str, row: Row) -> Example:
    return Example(name, str(column(row, ("question", "prompt", "problem"), f"row {name}")))


def examples(rows: Sequence[Row]) -> list[Example]:
    return examples_from(rows, _example)


def score(example: Example, given: Given) -> Score:
    return Score(None, detail=f"{len(given.text.split())} words")


TASK = Task(
    name="free_text",
    title="Open questions",
    prompts="open",
    examples=examples,
    columns="`question`",
    score=score,
    builtin=tuple({"id": f"q{n:02d}", "question": q} for n, q in enumerate(QUESTIONS, 1)),
    budgets=(512,),
    finisher_tokens=512,
)

app = benchmark(TASK)

if __name__ == "__main__":
    app()
