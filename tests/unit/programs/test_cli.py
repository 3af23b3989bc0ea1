from __future__ import annotations

import io
import signal
import subprocess
import sys
import time

import pytest
import typer
from rich.console import Console
from typer.testing import CliRunner

from hogwild_sgl import programs
from hogwild_sgl.client.records import StepRecord, StepReply
from hogwild_sgl.lang.events import Dropped, Grown, Published, Said, Started
from hogwild_sgl.program.command import command
from hogwild_sgl.program.display import Columns
from hogwild_sgl.transcript import load_results
from tests.fake_server import FakeServer


@pytest.fixture
def server():
    with FakeServer() as running:
        yield running


def call(name: str, *arguments: str):
    app = typer.Typer()
    app.command()(command(programs.find(name)))
    return CliRunner().invoke(app, list(arguments), env={"COLUMNS": "100", "TERM": "dumb"})


def test_alice_and_bob_solve_a_problem_given_on_the_command_line(server, tmp_path):
    save = tmp_path / "run.jsonl"
    done = call(
        "alice_bob",
        *("What is 6 * 7?", "--url", server.url, "--budget", "30", "--check-every", "20"),
        *("--probe", "10", "--save", str(save)),
    )
    assert done.exit_code == 0, done.output
    for line in ("**Alice [1]:**", "**Bob [1]:**", "answer", "forward passes", "at 10 passes"):
        assert line in done.output
    (result,) = load_results(save)
    assert result.answer == "42"
    assert f"Alice {result.tokens[0]}, Bob {result.tokens[1]}" in done.output


def test_quiet_prints_the_answer_and_nothing_else(server):
    done = call("single", "What is 6 * 7?", "--url", server.url, "--budget", "9", "--quiet")
    assert done.output == "42\n"


def test_a_problem_can_come_from_a_file(server, tmp_path):
    path = tmp_path / "problem.txt"
    path.write_text("How many primes?")
    call("single", f"@{path}", "--url", server.url, "--budget", "9")
    prompt = server.words.decode(server.bodies("/generate")[0]["input_ids"])
    assert "How many primes?" in prompt


def test_options_reach_the_program(server):
    call(
        "hint",
        *("What?", "--url", server.url, "--budget", "25", "--seed", "6", "--hint", "5:Look."),
        *("--name", "Ada", "--name", "Emmy", "--layout", "interleaved", "--temperature", "0"),
        *("--thinking", "open", "--examples", "--formatting", "open-en"),
    )
    (body,) = server.bodies("/hogwild/teams")
    prompt = server.words.decode(body["input_ids"])
    assert (body["workers"], body["layout"], body["seed"]) == (["Ada", "Emmy"], "interleaved", 6)
    assert "An example" in prompt and "<think>" in prompt and "open one" in prompt
    assert any("Look." in (step["text"]) for step in server.team.steps)
    assert server.bodies("/steps")[0]["sampling_params"]["temperature"] == 0


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("--budget", "0"), "budget"),
        (("--formatting", "poem-en"), "maths-en"),
        (("--formatting", "nowhere.toml"), "nowhere.toml"),
        (("--check-who", "me"), "check_who"),
        (("--workers", "1"), "2 to 16"),
        (("--thinking", "hard"), "thinking"),
    ],
)
def test_a_wrong_option_is_an_error_with_its_reason(server, arguments, complaint):
    done = call("team", "What?", "--url", server.url, *arguments)
    assert done.exit_code != 0
    assert complaint in done.output + (done.stderr or "")


def test_a_hint_without_its_passes_is_refused(server):
    done = call("hint", "What?", "--url", server.url, "--hint", "Look.")
    assert done.exit_code == 2 and "PASSES:TEXT" in done.output + (done.stderr or "")


def test_no_server_is_an_error_with_the_remedy():
    done = call("team", "What?", "--url", "http://127.0.0.1:9")
    assert done.exit_code == 1
    said = done.output + (done.stderr or "")
    assert "No server answers at http://127.0.0.1:9" in said and "hogwild serve MODEL" in said


@pytest.mark.parametrize("name", programs.NAMES)
def test_help_of_every_program_names_its_options(name):
    done = call(name, "--help")
    assert done.exit_code == 0
    program = programs.find(name)
    assert "--budget" in done.output
    assert ("--layout" in done.output) == program.team
    assert ("--probe" in done.output) == ("probes" in program.options)


def test_a_program_runs_as_a_module():
    run = [sys.executable, "-W", "error::RuntimeWarning", "-m", "programs.alice_bob", "--help"]
    done = subprocess.run(run, capture_output=True, text=True, check=True)
    assert "Alice and Bob" in done.stdout


def test_ctrl_c_stops_a_program_and_leaves_no_team_behind(server):
    server.board.pause = 0.05
    command = [sys.executable, "-m", "programs.team", "What is 6 * 7?", "--url", server.url]
    with subprocess.Popen([*command, "--budget", "100000"], stderr=subprocess.PIPE) as running:
        deadline = time.monotonic() + 300
        while not any(team.steps for team in server.teams.values()):
            assert running.poll() is None and time.monotonic() < deadline
            time.sleep(0.1)
        running.send_signal(signal.SIGINT)
        _, said = running.communicate(timeout=120)
    assert (running.returncode, said.decode().strip()) == (130, "Stopped.")
    assert all(team.closed for team in server.teams.values())


def record(worker: int | None, number: int | None = 1) -> StepRecord:
    return StepRecord("hw", worker, "x", False, number, 2)


def shown(columns: Columns, console: Console) -> str:
    with console.capture() as capture:
        console.print(columns)
    return capture.get()


def test_columns_show_each_workers_text_beside_the_others():
    console = Console(file=io.StringIO(), width=80, height=20, force_terminal=True)
    columns = Columns(("Alice", "Bob"), console)
    columns(Started(0, record(0), "**Alice [1]:** "))
    columns(Grown(0, "hello ", 2))
    columns(Started(1, record(1), "**Bob [1]:** "))
    columns(Grown(1, "there", 1))
    text = shown(columns, console)
    line = next(line for line in text.splitlines() if "hello" in line)
    assert "there" in line
    assert "2 tokens" in text and "1 tokens" in text


def test_a_dropped_step_disappears_and_a_hint_comes_before_live_text():
    console = Console(file=io.StringIO(), width=80, height=20, force_terminal=True)
    columns = Columns(("Alice", "Bob"), console)
    columns(Started(0, record(0), "A: "))
    columns(Grown(0, "nonsense", 1))
    columns(Dropped(0, "A: "))
    columns(Started(1, record(1), "B: "))
    columns(Grown(1, "work", 1))
    columns(Said(None, "**Hint:** look", record(None, None)))
    text = shown(columns, console)
    assert "nonsense" not in text and "(dropped)" in text
    assert columns.columns[1].text.plain.index("look") < columns.columns[1].text.plain.index("work")


def test_many_workers_are_shown_in_rows():
    console = Console(file=io.StringIO(), width=100, height=40, force_terminal=True)
    names = tuple(f"worker{i:02}" for i in range(16))
    text = shown(Columns(names, console), console)
    assert all(name in text for name in names)


def test_without_a_terminal_each_published_step_is_a_paragraph():
    out = io.StringIO()
    with Columns(("Alice", "Bob"), Console(file=out, width=80)) as columns:
        columns(Started(0, record(0), "\n\n**Alice [1]:** "))
        columns(Grown(0, "hello.\n\n", 2))
        reply = StepReply("hello.\n\n", (1, 2), record(0), {})
        columns(Published(0, "\n\n**Alice [1]:** ", reply))
    assert out.getvalue() == "**Alice [1]:** hello.\n\n"
