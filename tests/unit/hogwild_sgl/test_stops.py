from hogwild_sgl import prompts
from hogwild_sgl.driver.commands import FinishedStep
from hogwild_sgl.driver.stops import (
    boxed_answer,
    code_answer,
    finished_answer,
    stop_rule,
    written_answer,
)


def step(text: str, fed: str = "") -> FinishedStep:
    return FinishedStep(0, "Alice", 1, fed, text, 5, "sentence")


def test_a_box_in_what_was_written_stops_and_a_box_in_what_was_fed_does_not():
    assert boxed_answer(step(r"So it is \boxed{\frac{1}{2}}.")) == r"\frac{1}{2}"
    assert boxed_answer(step("Nothing yet.", fed=r"Write \boxed{7}: ")) is None


def test_a_whole_block_of_code_stops_and_half_a_block_does_not():
    assert code_answer(step("```python\nprint(1)\n```\n")).strip() == "print(1)"
    assert code_answer(step("```python\nprint(1)\n")) is None


def test_a_finishers_answer_begins_in_its_own_opening_words():
    maths, code = prompts.formatting("maths"), prompts.formatting("code")
    assert finished_answer(maths, maths.finish_text(), r"\frac{3}{4}}.") == r"\frac{3}{4}"
    assert finished_answer(maths, maths.finish_text(), "unfinished") is None
    assert finished_answer(code, code.finish_text(), "print(2)\n").strip() == "print(2)"


def test_open_questions_take_the_text_and_never_stop_early():
    chosen = prompts.formatting("open")
    assert stop_rule(chosen) is None
    assert finished_answer(chosen, chosen.finish_text(), " Both. ") == "Both."
    assert written_answer(chosen, "  ") is None
