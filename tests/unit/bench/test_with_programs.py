"""The real programs, over a real socket, from one command to its report."""

import re

import pytest

from hogwild_sgl.bench import gsm8k_x5
from hogwild_sgl.bench.run.start import start
from hogwild_sgl.bench.run.store import read_results
from tests.fake_server import FakeServer
from tests.unit.bench.build import write
from tests.unit.bench.fakes import plan

GIVEN = {
    "formatting": "maths-en",
    "temperature": 0.6,
    "top_p": 0.95,
    "check_every": 8,
    "step_tokens": 12,
    "finisher_tokens": 32,
    "early_stop": False,
    "hints": ((5, "Add."),),
}


def script(writing):
    """Workers write prose; whoever is to answer gets the first task right but for one."""
    if writing.worker is None:
        return "1; 2; 3; 4; 0}.\n"
    return f"Step {writing.number} of worker {writing.worker}.\n\n"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    place = tmp_path_factory.mktemp("bench")
    rows = [{"question": f"What is {n} + 1?", "answer": f"so\n#### {n + 1}"} for n in range(10)]
    with FakeServer(script) as server:
        begun = plan(
            place / "run",
            task=gsm8k_x5.TASK,
            urls=(server.url,),
            data=write(place / "gsm.jsonl", rows),
            programs=["all"],
            layouts=["combined", "independent"],
            budgets=(16, 32),
            given=GIVEN,
        )
        assert start(begun) == 0
        assert all(team.closed for team in server.teams.values())
    return place / "run"


def test_every_program_answers_every_task_at_every_budget(folder):
    found = {}
    for record in read_results(folder):
        name = (record["program"], record["layout"])
        for score in record["scores"]:
            found.setdefault(name, []).append((record["example"], score["budget"]))
    tasks = {("row-00000..row-00004", b) for b in (16, 32)}
    tasks |= {("row-00005..row-00009", b) for b in (16, 32)}
    teams = [(p, la) for p in ("alice_bob", "team", "retry", "hint") for la in LAYOUTS]
    baselines = ["single", "self_consistency", "self_consistency_vote", "text_rounds"]
    baselines += ["skeleton_of_thought", "skeleton_of_thought_2"]
    assert set(found) == {*teams, *((name, None) for name in baselines)}
    for name, answered in found.items():
        assert sorted(answered) == sorted(tasks), name


LAYOUTS = ("combined", "independent")


def test_each_grade_follows_from_the_text_that_the_transcript_holds(folder):
    for record in read_results(folder):
        gold = record["gold"]
        last = record["scores"][-1]
        written = record["result"]["final_text"] or record["result"]["answer"]
        numbers = re.findall(r"\d+", written.split("}")[0])[:5]
        expected = [float(a == b) for a, b in zip(numbers, gold, strict=True)]
        assert last["parts"] == expected, record["unit"]
        assert last["value"] == sum(expected) / 5


def test_teams_are_told_the_settings_of_the_command(folder):
    for record in read_results(folder):
        settings = record["result"]["settings"]
        assert settings["temperature"] == 0.6
        if record["layout"]:
            assert settings["layout"] == record["layout"]
            assert settings["check_every"] == 8
            assert record["result"]["budget"] == 32


def test_the_report_names_them_in_the_order_of_the_command(folder):
    text = (folder / "report.md").read_text()
    table = text.split("## Accuracy against budget")[1].split("##")[0]
    names = re.findall(r"^\| ([a-z\\_0-9 ]+?) \| 2 \|", table, re.MULTILINE)
    assert [name.replace("\\", "") for name in names] == [
        "single",
        "self_consistency x2",
        "self_consistency_vote x2",
        "skeleton_of_thought",
        "skeleton_of_thought_2",
        "text_rounds x2",
        *[f"{p} {la} x2" for p in ("alice_bob", "team", "retry", "hint") for la in LAYOUTS],
    ]
