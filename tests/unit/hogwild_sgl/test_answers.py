import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hogwild_sgl.answers.extract import (
    equal,
    equality,
    extract_answer,
    extract_answers,
    extract_code,
    gsm8k_gold,
    majority,
    split_answers,
)


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        (r"so \boxed{42}.", "42"),
        (r"\boxed{\frac{1}{2}}", r"\frac{1}{2}"),
        (r"\boxed{\frac{\sqrt{2}}{\binom{2n}{n}}}", r"\frac{\sqrt{2}}{\binom{2n}{n}}"),
        (r"\boxed{\{1, 2\}}", r"\{1, 2\}"),
        (r"\boxed {7}", "7"),
        (r"\fbox{9} then \fboxed{8}", "8"),
        (r"\boxed{1,234}", "1234"),
        (r"\boxed{1{,}234{,}567}", "1234567"),
        (r"\boxed{12\,345}", "12345"),
        (r"\boxed{1,234.50}", "1234.50"),
        (r"\boxed{90^\circ}", "90"),
        (r"\boxed{90^{\circ}}", "90"),
        (r"\boxed{90°}", "90"),
        (r"\boxed{90\text{ degrees}}", "90"),
        (r"\boxed{\text{A}}", "A"),
        (r"\boxed{\textbf{(C)}}", "C"),
        (r"\boxed{\mathrm{B}}", "B"),
        (r"\boxed{12\text{ cm}}", "12"),
        (r"\boxed{12 \text{ cm}^2}", "12"),
        (r"\boxed{12\,\mathrm{cm}^{3}}", "12"),
        (r"\boxed{3.5~\mathrm{m/s}}", "3.5"),
        (r"\boxed{8\pi\text{ square units}}", r"8\pi"),
        (r"\boxed{18 eggs}", "18"),
        (r"\boxed{5 km}", "5"),
        (r"\boxed{\$18}", "18"),
        (r"\boxed{-\$1,800}", "-1800"),
        (r"\boxed{20\%}", r"20\%"),
        (r"\boxed{20 percent}", r"20\%"),
        (r"\boxed{$x+1$}", "x+1"),
        (r"\boxed{\boxed{5}}", "5"),
        (r"\boxed{(3, 4)}", "(3, 4)"),
        (r"\boxed{3 n}", "3 n"),
        (r"\boxed{6m}", "6m"),
        (r"\boxed{2\mathrm{e}}", r"2\mathrm{e}"),
        (r"\boxed{12 dozen}", "12 dozen"),
        (r"\boxed{6\text{ h and }5\text{ min}}", r"6\text{ h and }5\text{ min}"),
        (r"\boxed{n \text{ is even}}", r"n \text{ is even}"),
        (r"\boxed{101_\text{two}}", r"101_\text{two}"),
    ],
)
def test_a_boxed_answer_is_found_and_cleaned(text, answer):
    assert extract_answer(text) == answer


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        (r"first \boxed{1}, no: \boxed{2}", "2"),
        (r"\boxed{3} and then \boxed{nan}", "3"),
        (r"\boxed{3} and then \boxed{}", "3"),
        (r"\boxed{3} and then \boxed{...}", "3"),
        (r"\boxed{3} and then \boxed{\ldots}", "3"),
        (r"\boxed{3}, write it as \boxed{\text{your answer}}", "3"),
        (r"\boxed{3} \boxed{?}", "3"),
        (r"\boxed{4} and then \boxed{\frac{1}{2", "4"),
        (r"\boxed{4} and then \boxed{12", "4"),
    ],
)
def test_the_last_valid_box_counts(text, answer):
    assert extract_answer(text) == answer


@pytest.mark.parametrize(
    "text",
    [
        "",
        "the answer is 42",
        r"\boxed{NaN}",
        r"\boxed{\text{nan}}",
        r"\boxed{",
        r"\boxed{ }",
        "{5}",
    ],
)
def test_a_text_without_a_valid_box_has_no_answer(text):
    assert extract_answer(text) is None


@given(st.text(alphabet="\\boxed{}$ 1a,^circt%.", max_size=60))
def test_no_text_makes_extraction_fail_or_give_an_empty_answer(text):
    answer = extract_answer(text)
    assert answer is None or answer.strip()


@given(st.recursive(st.sampled_from(["x", "12", "\\{", "\\}"]), lambda s: s.map("{{{}}}".format)))
def test_any_balanced_inside_ends_at_its_own_brace(inside):
    text = rf"\boxed{{y+{inside}+z}} and a later brace }}"
    assert extract_answer(text) == f"y+{inside}+z"


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("0.5", r"\frac{1}{2}"),
        (r"\frac12", "1/2"),
        ("204", "204.0"),
        ("007", "7"),
        ("1,234", "1234"),
        ("2(n-1)", "2n-2"),
        ("x^2+2x+1", "(x+1)^2"),
        ("k=1", "1"),
        (r"\{1,3\}", "3, 1"),
        ("69$,$84", "84, 69"),
        (r"90^\circ", "90"),
        (r"\text{A}", "a"),
        ("(B)", "B"),
        ("Monday", "monday"),
        (r"50\%", "50"),
        (r"(-\infty, 0) \cup\{1\}", r"(-\infty,0) \cup \{1\}"),
        (r"\frac{8}{\sqrt[3]{7}}", r"8 \cdot 7^{-1/3}"),
        ("3.0 \\times 10^8", "300000000"),
    ],
)
def test_equal_answers_are_equal_in_either_order(one, other):
    assert equal(one, other) and equal(other, one)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("1", "2"),
        ("1234", "1,235"),
        ("no", "on"),
        ("yes", "no"),
        ("(1,2)", "(2,1)"),
        (r"\frac{1}{2}", r"\frac{1}{3}"),
        ("A", "B"),
        ("x+1", "x-1"),
        ("3.14", r"\pi"),
        ("12", "some words here"),
    ],
)
def test_different_answers_are_not_equal(one, other):
    assert not equal(one, other) and not equal(other, one)


@pytest.mark.parametrize("nothing", [None, "", "nan", r"\text{NaN}", "..."])
def test_no_answer_equals_nothing_not_even_itself(nothing):
    assert not equal(nothing, nothing)
    assert not equal(nothing, "1") and not equal("1", nothing)


def test_a_tolerance_is_absolute_and_applies_to_numbers_and_lists_of_them():
    assert equal("9.83", "9.81", tolerance=0.02)
    assert not equal("9.84", "9.81", tolerance=0.02)
    assert equal(r"\sqrt{2}", "1.4", tolerance=0.1)
    assert equal("1.01, 2.01", "2, 1", tolerance=0.02)
    assert not equal("1.01, 2.01, 3", "2, 1", tolerance=0.02)
    assert not equal("x", "y", tolerance=10)


def test_answers_are_compared_from_many_threads_at_once():
    verdicts: dict[int, bool] = {}

    def compare(number: int) -> None:
        verdicts[number] = equal(rf"\frac{{{2 * number}}}{{4}}", rf"\frac{{{number}}}{{2}}")

    threads = [threading.Thread(target=compare, args=(n,)) for n in range(3, 11)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert verdicts == {n: True for n in range(3, 11)}


def test_an_answer_that_cannot_be_computed_is_not_equal_and_the_next_one_is_checked():
    checker = equality.Checker(seconds=2)
    try:
        assert checker.equal("9^{9^{9^{9}}}", "5") is False
        assert checker.equal(r"\frac{2}{4}", r"\frac{1}{2}") is True
    finally:
        checker.close()


def test_a_checker_without_time_is_refused():
    with pytest.raises(ValueError, match="at least 1 s"):
        equality.Checker(seconds=0)


@pytest.mark.parametrize(
    ("solution", "gold"),
    [
        ("16 - 7 = <<16-7=9>>9\n#### 9", "9"),
        ("much money\n#### 70,000", "70000"),
        ("a loss\n#### -12", "-12"),
        ("#### 5 was a mistake\n#### 6", "6"),
    ],
)
def test_the_gold_answer_of_gsm8k_is_behind_the_last_mark(solution, gold):
    assert gsm8k_gold(solution) == gold


@pytest.mark.parametrize("bad", ["", "the answer is 5", "no number\n#### "])
def test_a_gsm8k_solution_without_a_gold_answer_is_refused(bad):
    with pytest.raises(ValueError, match="####"):
        gsm8k_gold(bad)


@pytest.mark.parametrize(
    ("text", "answers"),
    [
        (r"\boxed{1, 2, 3, 4, 5}", ["1", "2", "3", "4", "5"]),
        (r"\boxed{1; 2; 3; 4; 5,000}", ["1", "2", "3", "4", "5000"]),
        (r"\boxed{1,234, 5, 6, 7, 8}", ["1234", "5", "6", "7", "8"]),
        (r"\boxed{1,234,5,6,7,8}", ["1234", "5", "6", "7", "8"]),
        (r"\boxed{100,200,300,400,500}", ["100", "200", "300", "400", "500"]),
        (r"\boxed{1, nan, 3, ?, 5}", ["1", None, "3", None, "5"]),
        (r"\boxed{(1,2), 3, \frac{1}{2}, 4, 5}", ["(1,2)", "3", r"\frac{1}{2}", "4", "5"]),
        (r"Question 2: \boxed{7}. For question 4 we get \boxed{9}", [None, "7", None, "9", None]),
        (r"Answer 1: \boxed{6} but no, answer 1 is \boxed{8}", ["8", None, None, None, None]),
        (r"问题 3：\boxed{12}", [None, None, "12", None, None]),
        (r"\boxed{1} \boxed{2} \boxed{3} \boxed{4} \boxed{5}", ["1", "2", "3", "4", "5"]),
        (r"\boxed{1} \boxed{2}", [None] * 5),
        (r"Question 9: \boxed{1}", [None] * 5),
        (r"Question 1: \boxed{3}. In all: \boxed{?, 2, 3, 4, 5}", ["3", "2", "3", "4", "5"]),
        ("nothing", [None] * 5),
    ],
)
def test_each_question_of_a_task_gets_its_own_answer(text, answers):
    assert extract_answers(text, 5) == answers


def test_a_list_of_another_length_is_no_list():
    assert split_answers("1, 2, 3", 5) is None


def test_a_task_without_questions_is_refused():
    with pytest.raises(ValueError, match="at least one question"):
        extract_answers("text", 0)


@pytest.mark.parametrize(
    ("answers", "winner"),
    [
        (["1", "2", "2"], "2"),
        (["0.5", "3", r"\frac{1}{2}"], "0.5"),
        ([None, "4", None], "4"),
        (["5", "6"], "5"),
        ([None, None], None),
        ([], None),
    ],
)
def test_the_majority_counts_equal_answers_together(answers, winner):
    assert majority(answers) == winner


def test_the_last_python_block_is_the_code():
    text = "```python\nprint(1)\n```\nBetter:\n```python\nprint(2)\n```\nprints\n```\n2\n```\n"
    assert extract_code(text) == "print(2)\n"


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("```\nx = 1\n```", "x = 1\n"),
        ("```py\nx = 1\n```\n```cpp\nint x;\n```", "x = 1\n"),
        ("```python\nx = 1\n```\n```python\nx = = 2\n```", "x = 1\n"),
        ("```python\nx = 1\n```\n```python\nx = 2\n", "x = 1\n"),
        ("````python\ns = '''\n```\n'''\n````", "s = '''\n```\n'''\n"),
        ("x = 1", None),
        ("```python\n```", None),
        ("```text\nhello\n```", None),
        ("```python\nx = 1", None),
    ],
)
def test_code_is_the_last_closed_block_that_is_python(text, code):
    assert extract_code(text) == code
