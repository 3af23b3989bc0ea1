"""LiveCodeBench on rows with the columns of the real data; programs run in the sandbox."""

import base64
import json
import pickle
import zlib
from dataclasses import replace

import pytest

from hogwild_sgl.bench import livecodebench
from hogwild_sgl.bench.run.grading import record_of
from hogwild_sgl.bench.run.grid import Setting, Unit
from hogwild_sgl.bench.sandbox import Limits
from hogwild_sgl.bench.sandbox.code_tests import (
    CodeTest,
    check,
    read_tests,
    same_output,
    same_value,
    unpack,
)
from hogwild_sgl.errors import UserError
from tests.unit.bench.build import grade, result, write


def packed(tests):
    text = json.dumps(tests)
    return base64.b64encode(zlib.compress(pickle.dumps(text))).decode()


STDIN_ROW = {
    "question_title": "Sum",
    "question_content": "Print the sum of two numbers.",
    "question_id": "abc_1",
    "platform": "atcoder",
    "difficulty": "easy",
    "contest_date": "2024-01-01T00:00:00",
    "starter_code": "",
    "public_test_cases": json.dumps([{"input": "1 2\n", "output": "3\n", "testtype": "stdin"}]),
    "private_test_cases": packed([{"input": "5 -7\n", "output": "-2\n", "testtype": "stdin"}]),
    "metadata": "{}",
}
FUNCTION_ROW = {
    "question_content": "Return the doubled list, each number plus b.",
    "question_id": "leet_2",
    "platform": "leetcode",
    "difficulty": "medium",
    "starter_code": "class Solution:\n    def double(self, a: List[int], b: int) -> List[int]:\n",
    "public_test_cases": json.dumps(
        [{"input": "[1, 2]\n3", "output": "[5, 7]", "testtype": "functional"}]
    ),
    "private_test_cases": json.dumps(
        [{"input": "[]\n0", "output": "[]", "testtype": "functional"}]
    ),
    "metadata": json.dumps({"func_name": "double"}),
}


@pytest.fixture
def livecode(tmp_path):
    task = livecodebench.task(1)
    return task, task.load(write(tmp_path / "l.jsonl", [STDIN_ROW, FUNCTION_ROW]))


def test_livecodebench_passes_a_right_program_and_fails_a_wrong_one(livecode):
    task, (stdin, function) = livecode
    assert stdin.id == "abc_1" and stdin.meta["difficulty"] == "easy"
    assert len(stdin.gold["tests"]) == 2
    right = "a, b = map(int, input().split())\nprint(a + b)"
    assert grade(task, stdin, right, "").value == 1
    only_public = "a, b = map(int, input().split())\nprint(abs(a) + abs(b))"
    wrong = grade(task, stdin, only_public, "")
    assert wrong.value == 0 and "wrong after 2 of 2 tests" in wrong.detail
    code = "class Solution:\n    def double(self, a, b):\n        return [2 * x + b for x in a]"
    assert grade(task, function, code, "").value == 1
    assert grade(task, function, code.replace("2 * x", "3 * x"), "").value == 0


def test_no_program_and_a_broken_program_do_not_pass(livecode):
    task, (stdin, _) = livecode
    assert grade(task, stdin, None, "").value == 0
    broken = grade(task, stdin, "import socket\nsocket.socket()", "")
    assert broken.value == 0 and "PermissionError" in broken.detail


def test_the_starter_code_and_the_way_of_input_are_part_of_the_problem(livecode):
    _, (stdin, function) = livecode
    assert "standard input" in stdin.problem
    assert "def double(self" in function.problem and "standard input" not in function.problem


def test_a_program_never_sees_the_expected_output(livecode):
    task, (stdin, _) = livecode
    spy = "import os, sys\nprint([a for a in sys.argv], os.listdir('.'), sys.stdin.read())"
    detail = grade(task, stdin, spy, "").detail
    assert "'3\\n'" in detail  # the verdict names it, from outside
    shown = detail.split(" for ")[0]
    assert "3" not in shown.replace("1 2", "")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"public_test_cases": "", "private_test_cases": ""}, "neither public nor private"),
        ({"public_test_cases": "not json"}, "cannot be read"),
        ({"public_test_cases": '[{"input": "1"}]'}, "has no 'output'"),
        (
            {"public_test_cases": '[{"input": "1", "output": "1", "testtype": "magic"}]'},
            "testtype is one of",
        ),
        (
            {"public_test_cases": '[{"input": "1", "output": "1", "testtype": "functional"}]'},
            "no func_name",
        ),
    ],
)
def test_a_livecodebench_row_that_cannot_be_graded_is_refused(tmp_path, change, message):
    path = write(tmp_path / "l.jsonl", [{**STDIN_ROW, **change}])
    with pytest.raises(UserError, match=message):
        livecodebench.task(1).load(path)


class Evil:
    def __reduce__(self):
        return (print, ("run",))


def test_packed_tests_that_would_run_code_are_refused(capsys):
    data = base64.b64encode(zlib.compress(pickle.dumps(Evil()))).decode()
    with pytest.raises(ValueError, match="only plain data"):
        unpack(data)
    assert capsys.readouterr().out == ""


def test_tests_are_read_in_order_from_all_columns():
    public = [{"input": "1", "output": "1", "testtype": "stdin"}]
    private = [{"input": "2", "output": "2", "testtype": "stdin"}]
    assert [t.input for t in read_tests(json.dumps(public), packed(private))] == ["1", "2"]


@pytest.mark.parametrize(
    ("printed", "expected", "same"),
    [
        ("3\n", "3", True),
        ("3 \n\n", "3\n", True),
        ("1.0 2", "1 2.00", True),
        ("1 2", "1\n2", False),
        ("Yes", "yes", False),
        ("0.1", "0.10000001", False),
        ("", "0", False),
    ],
)
def test_outputs_are_compared_word_by_word(printed, expected, same):
    assert same_output(printed, expected) is same


@pytest.mark.parametrize(
    ("returned", "expected", "same"),
    [("[1, 2]", "[1,2]", True), ("1.0", "1", True), ("null", "[]", False), ("x", "1", False)],
)
def test_returned_values_are_compared_as_values(returned, expected, same):
    assert same_value(returned, expected) is same


def test_a_slow_program_fails_at_the_test_where_it_is_slow():
    tests = [CodeTest("1", "1", "stdin"), CodeTest("2", "2", "stdin")]
    code = "n = input()\nwhile n == '2': pass\nprint(n)"
    verdict = check(code, tests, None, Limits(seconds=1))
    assert (verdict.passed, verdict.outcome, verdict.tests) == (False, "time", 2)


def test_a_program_without_tests_cannot_pass():
    with pytest.raises(ValueError, match="without tests"):
        check("print(1)", [], None)


def test_long_tests_of_a_program_are_not_kept_with_every_result(livecode):
    _, (stdin, _) = livecode
    tests = [{"input": "x" * 5000, "output": "y", "kind": "stdin"}]
    unit = Unit(Setting("team", "combined", 2), replace(stdin, gold=tests), 0, (10,))
    record = record_of(unit, result(), [], "http://x")
    assert len(record["gold"]) < 100 and record["digest"] == unit.example.digest
