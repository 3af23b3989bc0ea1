import json

import pytest
from rich.console import Console
from typer.testing import CliRunner

from hogwild_sgl.bench import aime, catalog, gsm8k_x5, limo, livecodebench, olympiadbench
from hogwild_sgl.bench.catalog import VARIANTS, choose
from hogwild_sgl.bench.run import start
from hogwild_sgl.bench.run.grid import Job
from hogwild_sgl.bench.run.progress import Board
from hogwild_sgl.bench.run.start import look_at
from hogwild_sgl.bench.suite import command as cli
from hogwild_sgl.errors import ServerGone, UserError
from hogwild_sgl.prompts.formatting import Formatting
from tests.unit.bench.build import result, step
from tests.unit.bench.fakes import SUMS, plan, scripted

COMMANDS = {m.__name__: m.app for m in (aime, gsm8k_x5, limo, livecodebench, olympiadbench)}


@pytest.fixture
def sums(monkeypatch, tmp_path):
    """The command line of the scripted benchmark, without a server."""
    team = scripted()
    single = scripted(name="single", fewest=1, most=1, layouts=False)
    monkeypatch.setattr(start, "catalog", lambda: {"team": team, "single": single})
    monkeypatch.setattr(start, "look_at", lambda urls: {"model": "tiny"})
    app = cli.benchmark(SUMS)

    def invoke(*arguments):
        out = ["--out", str(tmp_path / "run")]
        return CliRunner().invoke(app, [*out, *arguments])

    return invoke


def test_one_command_runs_all_programs_and_writes_the_report(sums, tmp_path):
    outcome = sums("--programs", "all", "--limit", "4", "--layouts", "combined,independent")
    assert outcome.exit_code == 0, outcome.output
    assert "12 runs: 0 done before, 12 now, 0 failed." in outcome.output
    assert "team independent x2" in (tmp_path / "run" / "report.md").read_text()


def test_the_same_command_again_does_nothing_twice_and_a_larger_limit_goes_on(sums):
    sums("--limit", "2")
    outcome = sums("--limit", "2")
    assert "4 runs: 4 done before, 0 now" in outcome.output
    outcome = sums("--limit", "5")
    assert "10 runs: 4 done before, 6 now" in outcome.output


def test_other_settings_in_the_same_folder_are_refused_with_what_differs(sums):
    sums("--limit", "2")
    outcome = sums("--limit", "2", "--temperature", "0")
    assert outcome.exit_code == 1
    assert "temperature: was 0.6, is 0.0" in outcome.output and "--out" in outcome.output


def test_a_dry_run_says_what_would_be_run_and_writes_nothing(sums, tmp_path):
    outcome = sums("--dry-run", "--limit", "3", "--budgets", "8,4", "--seeds", "2")
    assert outcome.exit_code == 0
    assert "3 problems, 2 seed(s), 12 runs" in outcome.output
    assert "team combined x2 at 4, 8 passes" in outcome.output
    assert not (tmp_path / "run").exists()


def test_problems_from_a_local_file_are_used(sums, tmp_path):
    data = tmp_path / "own.jsonl"
    data.write_text(json.dumps({"question": "What is 3 + 3?", "answer": "6"}) + "\n")
    outcome = sums("--data", str(data))
    assert "2 runs: 0 done before, 2 now" in outcome.output


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--programs", "magic"), "There is no program magic"),
        (("--budgets", "a"), "--budgets"),
        (("--budgets", "0"), "positive numbers of forward passes"),
        (("--workers", "17"), "works with 2 to 16"),
        (("--formatting", "klingon"), "klingon"),
        (("--hint", "soon: look"), "200:Try small cases"),
        (("--data", "missing.jsonl"), "Cannot read the data file"),
        (("--programs", ","), "--programs is empty"),
    ],
)
def test_bad_options_get_a_clear_message(sums, arguments, message):
    outcome = sums(*arguments)
    assert outcome.exit_code != 0
    assert message in " ".join(outcome.output.replace("│", " ").split())


@pytest.mark.parametrize("name", COMMANDS)
def test_every_benchmark_explains_itself(name):
    outcome = CliRunner().invoke(COMMANDS[name], ["--help"], terminal_width=200)
    assert outcome.exit_code == 0
    for option in ("--url", "--data", "--programs", "--budgets", "--limit", "--seeds", "--out"):
        assert option in outcome.output


def test_an_unknown_form_of_a_benchmark_lists_the_known_ones():
    outcome = CliRunner().invoke(aime.app, ["--year", "1999"])
    assert outcome.exit_code != 0 and "2024, 2025" in outcome.output


def test_a_server_that_is_not_there_is_named():
    with pytest.raises(ServerGone, match="127.0.0.1:9"):
        look_at(["http://127.0.0.1:9"])


def test_servers_with_different_models_are_refused(monkeypatch):
    class Fake:
        def __init__(self, url, **_):
            self.url = url

        def __enter__(self):
            return self

        def __exit__(self, *_):
            pass

        def info(self):
            return {"model": self.url[-1], "sglang": "1"}

    monkeypatch.setattr(start, "Client", Fake)
    assert look_at(["http://a", "http://a"])["model"] == "a"
    with pytest.raises(UserError, match="not alike"):
        look_at(["http://a", "http://b"])


def test_the_plan_s_settings_repeat_the_run():
    formatting = plan("x").formatting()
    assert isinstance(formatting, Formatting)
    settings = plan("x", budgets=(4, 8)).settings(formatting, {"model": "m", "teams": 3})
    assert settings["budgets"] == [4, 8] and settings["server"]["model"] == "m"
    assert settings["formatting"]["system"] == formatting.system
    assert "teams" not in json.dumps(settings["server"])


class Recording:
    """Stands for a program of the `programs` package."""

    def __init__(self):
        self.settings = []
        self.about = "records what it is told"

    def solve(self, problem, settings, backend):
        self.settings.append((problem, settings, backend))
        return result(step(0, "x", 0, 1), problem=problem, answer="7")


@pytest.fixture
def recording(monkeypatch):
    program = Recording()
    monkeypatch.setattr("hogwild_sgl.programs.find", lambda name: program)
    monkeypatch.setattr(catalog.Endpoints, "at", lambda self, url: f"backend of {url}")
    return program


def job(**changes):
    fields = {
        "url": "http://a",
        "problem": "P",
        "workers": 3,
        "layout": "interleaved",
        "budgets": (64, 128),
        "seed": 9,
        "options": {"temperature": 0.1, "check_every": 0},
    }
    return Job(**{**fields, **changes})


def test_a_program_gets_the_job_as_its_settings(recording):
    catalog.catalog()["team"].run(job())
    [(problem, settings, backend)] = recording.settings
    assert (problem, backend) == ("P", "backend of http://a")
    assert (settings.budget, settings.probes) == (128, (64,))
    assert (settings.workers, settings.layout, settings.seed) == (3, "interleaved", 9)
    assert (settings.temperature, settings.check_every) == (0.1, 0)


def test_variants_of_a_program_differ_in_what_is_fixed(recording):
    programs = catalog.catalog()
    programs["self_consistency_vote"].run(job(layout=None))
    assert recording.settings[-1][1].vote == "majority"
    found = programs["self_consistency"].run(job(layout=None, budgets=(64,)))
    assert recording.settings[-1][1].vote == "finisher" and found.final_text == "5}"
    programs["skeleton_of_thought_2"].run(job(layout=None, budgets=(64,), workers=1))
    assert recording.settings[-1][1].threads == 2


def test_every_variant_names_a_real_program():
    known = catalog.catalog()
    assert list(known) == [variant.name for variant in VARIANTS]
    assert {"single", "self_consistency", "skeleton_of_thought", "text_rounds", "team"} <= {*known}


def test_all_means_every_program_and_hint_only_with_a_hint():
    known = {"team": scripted(), "hint": scripted(name="hint")}
    assert [p.name for p in choose(["all"], known, hints=False)] == ["team"]
    assert [p.name for p in choose(["all", "team"], known, hints=True)] == ["team", "hint"]
    with pytest.raises(UserError, match="needs a hint"):
        choose(["hint"], known, hints=False)


def test_the_board_shows_the_running_accuracy_at_the_largest_budget():
    console = Console(record=True, width=100, force_terminal=False)
    scores = [{"budget": 10, "value": 0}, {"budget": 20, "value": 1}]
    line = {"program": "team", "layout": "combined", "workers": 2, "scores": scores}
    with Board("Sums", 3, console) as board:
        board.already(line)
        board.begin()
        board.finished({**line, "scores": [{"budget": 20, "value": 0}]})
        board.failed({"unit": "u", "error": "broken [b]"})
        assert board.line() == "2/3 team combined x2 @20 50.0%"
    shown = console.export_text()
    assert "broken [b]" in shown and "50.0%" in shown


def test_the_board_also_works_on_a_terminal():
    console = Console(record=True, width=100, force_terminal=True)
    line = {"program": "single", "layout": None, "workers": 1}
    with Board("Open", 1, console) as board:
        board.finished({**line, "scores": [{"budget": 5, "value": None}]})
    assert "not graded" in console.export_text()
