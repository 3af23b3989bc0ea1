import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hogwild_sgl import prompts
from hogwild_sgl.prompts.formatting import CHECK_TEXT, Formatting, check_workers, load_formatting
from hogwild_sgl.prompts.templates import fill, join_names

ALL = [f"{task}-{language}" for task in ("maths", "code", "open") for language in ("en", "zh")]
# Wording for one other worker and for several must not be mixed up.
ONE_OTHER = re.compile(r"\b(your partner|the other one|the other worker)\b")
SEVERAL = re.compile(
    r"\b(your partners|each other by name|the others|somebody else|the other workers)\b"
)


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("workers", range(2, 17))
def test_every_formatting_fits_every_number_of_workers(name, workers):
    names = prompts.worker_names(workers)
    chosen = prompts.formatting(*name.split("-"), examples=True)
    system, user = chosen.messages("How many?", names)
    texts = [system["content"], user["content"], *chosen.headers_for(names).values()]
    texts += [chosen.opener(i, names) for i in range(workers)]
    assert not any("{{" in text or "|" in text for text in texts)
    assert all(name in system["content"] for name in names)
    assert "How many?" in user["content"]


@pytest.mark.parametrize("task", ["maths", "code", "open"])
def test_english_wording_is_singular_for_one_other_worker_and_plural_for_more(task):
    def read(workers: int) -> str:
        names = prompts.worker_names(workers)
        chosen = prompts.formatting(task)
        parts = [m["content"] for m in chosen.messages("?", names)]
        return " ".join([*parts, *chosen.headers_for(names).values()]).lower()

    assert ONE_OTHER.search(read(2)) and not SEVERAL.search(read(2))
    for workers in (3, 4, 16):
        assert SEVERAL.search(read(workers)) and not ONE_OTHER.search(read(workers))


def test_the_check_is_the_papers_question_word_for_word():
    assert prompts.formatting().check_text == CHECK_TEXT
    assert CHECK_TEXT == "Wait, am I doing redundant work? (yes/no): "


@pytest.mark.parametrize(
    ("name", "text", "answer"),
    [
        ("maths-en", "Yes, Bob has done it.", "yes"),
        ("maths-en", " no. I go on", "no"),
        ("maths-en", "**No**, not yet", "no"),
        ("maths-en", "Now I think so", "unclear"),
        ("maths-en", "", "unclear"),
        ("maths-zh", "是的,换一个", "yes"),
        ("maths-zh", "不是", "no"),
        ("maths-zh", "否。", "no"),
    ],
)
def test_a_checks_answer_is_how_the_text_begins(name, text, answer):
    assert prompts.builtin(name).check_answer(text) == answer


def test_openers_differ_for_the_first_worker_and_then_take_turns():
    chosen, names = prompts.formatting(), prompts.worker_names(5)
    openers = [chosen.opener(i, names) for i in range(5)]
    assert len(set(openers)) == 5
    assert all(name in opener for name, opener in zip(names, openers, strict=True))
    assert openers[1].replace("Bob", "") == openers[4].replace("Emma", "")
    assert prompts.formatting(openers=False).opener(0, names) == ""


@given(st.text())
def test_a_problem_is_never_taken_for_a_template(problem):
    chosen = prompts.formatting()
    _, user = chosen.messages(problem, ("Alice", "Bob"))
    assert problem in user["content"]


def test_a_problem_with_placeholders_in_it_stays_as_it_is():
    _, user = prompts.formatting().messages("What is {{names}} and {{a|b}}?", ("Alice", "Bob"))
    assert "What is {{names}} and {{a|b}}?" in user["content"]


def test_the_step_header_names_worker_and_number():
    assert prompts.formatting().step_header("Alice", 3) == "**Alice [3]:** "


@pytest.mark.parametrize("thinking", ["none", "template", "open"])
def test_the_thinking_tag_is_opened_and_closed_where_it_belongs(thinking):
    chosen = prompts.formatting(thinking=thinking)
    assert chosen.turn_start().startswith("<think>") == (thinking == "open")
    assert ("</think>" in chosen.finish_text()) == (thinking != "none")
    assert "</think>" not in chosen.finish_text(written="done.\n</think>\n\nSo:")


def test_a_formatting_file_changes_what_it_names_and_keeps_the_rest(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text('base = "maths-zh"\ncheck_text = "重复吗?"\nforbidden = ["</think>"]\n')
    mine = load_formatting(path)
    assert mine.check_text == "重复吗?"
    assert mine.forbidden == ("</think>",)
    assert mine.system == prompts.builtin("maths-zh").system
    assert prompts.find_formatting(str(path)) == mine


def test_a_formatting_file_can_stand_alone(tmp_path):
    path = tmp_path / "own.toml"
    path.write_text(
        'name = "own"\nlanguage = "en"\nsystem = "Be {{n}}."\nuser = "{{problem}}"\n'
        'preamble = ""\nheader_others = ""\nheader_own = ""\nfinisher = "So: "\n'
    )
    assert load_formatting(path).messages("Q", ("A", "B"))[0]["content"] == "Be two."


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ('base = "maths-fr"', "maths-fr"),
        ('base = "maths-en"\nchek = "x"', "chek"),
        ('base = "maths-en"\nuser = "no place for it"', "problem"),
        ('base = "maths-en"\nsystem = "{{nobody}}"', "nobody"),
        ('base = "maths-en"\nthinking = "always"', "thinking"),
        ('base = "maths-en"\ncheck_yes = ["no"]', "check_yes"),
        ("base = ", "not TOML"),
        ('name = "bare"', "maths-en"),
    ],
)
def test_a_formatting_file_with_a_mistake_is_refused_with_its_name(tmp_path, text, complaint):
    path = tmp_path / "wrong.toml"
    path.write_text(text)
    with pytest.raises(ValueError, match=re.escape(complaint)) as caught:
        load_formatting(path)
    assert "wrong.toml" in str(caught.value)


def test_an_unknown_task_or_language_lists_the_known_ones():
    with pytest.raises(ValueError, match="maths"):
        prompts.formatting("poetry")
    with pytest.raises(ValueError, match="zh"):
        prompts.formatting("maths", "fr")


@pytest.mark.parametrize("names", [[], ["A"], ["A", "A"], ["A", ""], [str(i) for i in range(17)]])
def test_a_team_needs_2_to_16_different_names(names):
    with pytest.raises(ValueError):
        check_workers(names)


def test_names_are_joined_as_the_language_does():
    assert join_names(["A"], "en") == "A"
    assert join_names(["A", "B", "C"], "en") == "A, B and C"
    assert join_names(["A", "B", "C"], "zh") == "A、B和C"


def test_latex_braces_are_no_placeholders():
    assert fill(r"\boxed{\frac{1}{2}}", {}, 1) == r"\boxed{\frac{1}{2}}"


def test_formattings_are_values():
    assert prompts.formatting() == prompts.formatting()
    assert isinstance(prompts.formatting().to_dict()["openers"], tuple)
    assert Formatting(**prompts.formatting().to_dict()) == prompts.formatting()
