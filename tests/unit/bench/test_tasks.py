"""Each benchmark on small rows with the columns of the real data."""

import datasets
import pytest

from hogwild_sgl.bench import aime, free_text, gsm8k_x5, limo, livecodebench, olympiadbench
from hogwild_sgl.bench.suite.data import Example, HubSource, hub_rows, local_rows, row_ids
from hogwild_sgl.bench.suite.task import Score
from hogwild_sgl.errors import UserError
from tests.unit.bench.build import grade, write


def test_limo_reads_its_columns_and_grades_by_mathematics(tmp_path):
    rows = [
        {"question": "Halve one.", "solution": "It is \\boxed{99}.", "answer": "\\frac{1}{2}"},
        {"question": "Add 600 and 634.", "solution": "", "answer": "$1,234$"},
    ]
    half, added = limo.TASK.load(write(tmp_path / "limo.jsonl", rows))
    assert half.problem == "Halve one." and added.gold == "1234"
    assert grade(limo.TASK, half, "0.5").value == 1
    assert grade(limo.TASK, half, "0.6").value == 0
    assert grade(limo.TASK, half, None, "no idea").value == 0
    assert grade(limo.TASK, added, "1234").value == 1


def test_the_paper_s_values_come_with_limo():
    assert limo.TASK.published["combined"] == {1024: 29.7, 4096: 72.3, 8192: 89.1}
    assert limo.TASK.published["baseline with finisher"][8192] == 76.2
    assert len(limo.TASK.published) == 5


@pytest.mark.parametrize("columns", [("question", "answer"), ("problem", "answer")])
def test_aime_answers_are_integers_without_leading_zeros(tmp_path, columns):
    question, answer = columns
    task = aime.task(2024)
    [example] = task.load(write(tmp_path / "a.jsonl", [{question: "Seven?", answer: "007"}]))
    assert example.gold == "7"
    assert grade(task, example, "7").value == 1 and grade(task, example, "007").value == 1
    assert grade(task, example, "8").value == 0


@pytest.mark.parametrize("bad", ["1000", "-3", "1/2", "x"])
def test_a_row_that_is_no_aime_row_is_refused(tmp_path, bad):
    with pytest.raises(UserError, match="Row 1.*0 to 999"):
        aime.task(2025).load(write(tmp_path / "a.jsonl", [{"question": "?", "answer": bad}]))


def gsm_rows(count):
    return [
        {"question": f"What is {n} plus 1?", "answer": f"It is {n + 1}.\n#### {n + 1}"}
        for n in range(count)
    ]


def test_gsm8k_x5_joins_five_rows_and_grades_each_question(tmp_path):
    examples = gsm8k_x5.TASK.load(write(tmp_path / "g.jsonl", gsm_rows(12)))
    assert len(examples) == 2  # the last two rows make no whole task
    first = examples[0]
    assert first.gold == ["1", "2", "3", "4", "5"]
    assert "Question 5: What is 4 plus 1?" in first.problem
    assert first.id == "row-00000..row-00004"
    graded = grade(gsm8k_x5.TASK, first, "x", "1; 2; 9; 4; 5}. That is all.")
    assert graded.parts == (1, 1, 0, 1, 1) and graded.value == 0.8


def test_gsm8k_x5_also_reads_a_whole_text_with_labelled_boxes(tmp_path):
    [first] = gsm8k_x5.TASK.load(write(tmp_path / "g.jsonl", gsm_rows(5)))
    text = "Question 2: \\boxed{2}. Question 4: \\boxed{7}."
    assert grade(gsm8k_x5.TASK, first, "7", text).parts == (0, 1, 0, 0, 0)


def test_gsm8k_x5_grades_a_voted_answer_without_a_text(tmp_path):
    [first] = gsm8k_x5.TASK.load(write(tmp_path / "g.jsonl", gsm_rows(5)))
    assert grade(gsm8k_x5.TASK, first, "1; 2; 3; 4; 0", "").parts == (1, 1, 1, 1, 0)
    assert grade(gsm8k_x5.TASK, first, None, "").parts == (0,) * 5


def test_gsm8k_x5_never_stops_at_the_first_box():
    assert gsm8k_x5.TASK.early_stop is False


def test_the_answers_of_gsm8k_x5_are_never_searched_in_the_task_s_own_text(tmp_path):
    [first] = gsm8k_x5.TASK.load(write(tmp_path / "g.jsonl", gsm_rows(5)))
    assert "\\boxed{answer 1; answer 2" in first.problem
    # A model that only repeats the instruction has answered nothing.
    assert grade(gsm8k_x5.TASK, first, None, "answer 1; answer 2; ... answer 5}").value == 0


def test_too_few_rows_for_one_task_are_refused(tmp_path):
    with pytest.raises(UserError, match="at least 5 rows"):
        gsm8k_x5.TASK.load(write(tmp_path / "g.jsonl", gsm_rows(4)))


def test_a_gsm8k_row_without_a_gold_answer_names_its_place(tmp_path):
    rows = gsm_rows(5)
    rows[3]["answer"] = "no mark"
    with pytest.raises(UserError, match="Rows 1 to 5.*####"):
        gsm8k_x5.TASK.load(write(tmp_path / "g.jsonl", rows))


def test_olympiadbench_reads_plain_rows(tmp_path):
    task = olympiadbench.task("maths")
    rows = [{"id": 7, "question": "Roots of x^2 = 4?", "answer": "$2$,$-2$"}]
    [example] = task.load(write(tmp_path / "o.jsonl", rows))
    assert example.id == "7"
    assert grade(task, example, "-2, 2").value == 1
    assert grade(task, example, "2").value == 0
    assert grade(task, example, None, "").value == 0


def test_olympiadbench_physics_has_units_context_and_tolerances(tmp_path):
    task = olympiadbench.task("physics")
    row = {
        "id": 3,
        "context": "A stone falls.",
        "question": "How fast is it after a second?",
        "final_answer": ["9.81"],
        "unit": "m/s",
        "error": "1e-1",
        "is_multiple_answer": False,
        "subfield": "Mechanics",
    }
    [example] = task.load(write(tmp_path / "o.jsonl", [row]))
    assert example.problem.startswith("A stone falls.\n\nHow fast")
    assert "in the unit m/s" in example.problem
    assert example.meta == {"subfield": "Mechanics"}
    assert grade(task, example, "9.9").value == 1
    assert grade(task, example, "9.95").value == 0
    assert grade(task, example, "9.8\\ \\mathrm{m/s}").value == 1


def test_several_answers_each_have_their_own_tolerance_and_any_order(tmp_path):
    task = olympiadbench.task("physics")
    row = {"question": "Two?", "final_answer": ["1.0", "20"], "error": "1e-2,1"}
    [example] = task.load(write(tmp_path / "o.jsonl", [row]))
    assert grade(task, example, "20.5, 1.005").value == 1
    assert grade(task, example, "20.5, 1.5").value == 0
    assert grade(task, example, "1.0").value == 0
    listed = {"question": "Two?", "final_answer": ["1.0,20"], "error": "1e-2,1"}
    [example] = task.load(write(tmp_path / "l.jsonl", [listed]))
    assert grade(task, example, "1.001, 19.5").value == 1


def test_rows_with_pictures_are_passed_over(tmp_path):
    rows = [
        {"question": "See the figure.", "final_answer": ["1"], "image_1": {"bytes": "x"}},
        {"question": "Plain.", "final_answer": ["2"], "image_1": None},
    ]
    examples = olympiadbench.task("maths").load(write(tmp_path / "o.jsonl", rows))
    assert [example.problem for example in examples] == ["Plain."]


def test_a_tolerance_that_is_no_number_is_refused(tmp_path):
    rows = [{"question": "?", "final_answer": ["1"], "error": "some"}]
    with pytest.raises(UserError, match="`error` is a number"):
        olympiadbench.task("physics").load(write(tmp_path / "o.jsonl", rows))


def test_open_questions_are_built_in_and_not_graded():
    examples = free_text.TASK.load(None)
    assert len(examples) >= 20 and examples[0].id == "q01"
    assert grade(free_text.TASK, examples[0], "a text", "a text") == Score(None, detail="2 words")


def test_own_open_questions_come_from_a_file(tmp_path):
    path = write(tmp_path / "q.jsonl", [{"question": "Why?"}, {"question": "How?"}])
    assert [e.problem for e in free_text.TASK.load(path)] == ["Why?", "How?"]
    assert [e.problem for e in free_text.TASK.load(path, limit=1)] == ["Why?"]


def test_a_missing_column_lists_what_there_is(tmp_path):
    path = write(tmp_path / "x.jsonl", [{"prompt": "?", "label": "1"}])
    with pytest.raises(UserError, match=r"no column answer; it has \['label', 'prompt'\]"):
        limo.TASK.load(path)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('{"a": 1}\nnonsense\n', "line 2 is not JSON"),
        ("[1]\n", "line 1 is not a JSON object"),
        ("\n\n", "has no rows"),
    ],
)
def test_a_bad_data_file_is_named_with_the_line(tmp_path, content, message):
    path = tmp_path / "bad.jsonl"
    path.write_text(content)
    with pytest.raises(UserError, match=message):
        local_rows(path)


def test_a_missing_data_file_is_a_clear_problem(tmp_path):
    with pytest.raises(UserError, match="Cannot read the data file"):
        local_rows(tmp_path / "none.jsonl")


def test_without_a_network_the_hub_points_to_a_local_file(monkeypatch):
    def no_network(*args, **kwargs):
        raise ConnectionError("no route")

    monkeypatch.setattr(datasets, "load_dataset", no_network)
    with pytest.raises(UserError, match="--data FILE"):
        hub_rows(HubSource("GAIR/LIMO", split="train"))


def test_hub_rows_are_asked_for_by_id_configuration_and_split(monkeypatch):
    import datasets

    asked = []

    def load(*args, **kwargs):
        asked.append((args, kwargs))
        return [{"question": "q", "answer": "#### 1"}]

    monkeypatch.setattr(datasets, "load_dataset", load)
    assert hub_rows(gsm8k_x5.TASK.hub) == [{"question": "q", "answer": "#### 1"}]
    hub_rows(livecodebench.task(2).hub)
    files = [
        f"hf://datasets/livecodebench/code_generation_lite/{n}.jsonl" for n in ("test", "test2")
    ]
    assert asked == [
        (("openai/gsm8k", "main"), {"split": "test"}),
        (("json",), {"data_files": {"test": files}, "split": "test"}),
    ]


def test_ids_are_those_of_the_data_if_they_are_unique():
    assert row_ids([{"id": 0}, {"id": 1}]) == ["0", "1"]
    assert row_ids([{"id": 1}, {"id": 1}]) == ["row-00000", "row-00001"]
    assert row_ids([{"question_id": "a"}]) == ["a"]


def test_an_example_knows_when_its_data_have_changed():
    one = Example("1", "text", "gold")
    assert one.digest == Example("other id", "text", "gold", {"m": 1}).digest
    assert one.digest != Example("1", "text", "silver").digest
    assert one.digest != Example("1", "text!", "gold").digest


@pytest.mark.parametrize("bad", [{"id": "", "problem": "x"}, {"id": "1", "problem": "  "}])
def test_an_example_without_id_or_text_is_refused(bad):
    with pytest.raises(ValueError):
        Example(**bad)


@pytest.mark.parametrize("bad", [-0.1, 1.5])
def test_a_grade_is_between_0_and_1(bad):
    with pytest.raises(ValueError, match="between 0 and 1"):
        Score(bad)


def test_a_limit_below_one_is_refused():
    with pytest.raises(UserError, match="--limit"):
        free_text.TASK.load(None, 0)
