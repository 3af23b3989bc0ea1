"""The commands: help for everything, and errors that say what to do."""

from __future__ import annotations

import json
import socket
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest
import typer
from typer.testing import CliRunner

from hogwild_sgl import programs
from hogwild_sgl.cli.app import app
from hogwild_sgl.launch.ports import choose_port

COMMANDS = ("serve", "demo", "solve", "check", "replay")


def invoke(*arguments: str):
    return CliRunner().invoke(app, list(arguments), env={"COLUMNS": "200", "NO_COLOR": "1"})


@pytest.fixture
def model(tmp_path):
    """A folder with all the files of a model, though empty ones."""
    folder = tmp_path / "model"
    folder.mkdir()
    for name in ("config.json", "tokenizer.json", "model.safetensors"):
        (folder / name).touch()
    return folder


@pytest.fixture
def other_server():
    """A web server that is not SGLang."""

    class NotFound(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_error(404)

        def log_message(self, *args: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), NotFound) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def test_hogwild_alone_lists_its_commands():
    result = invoke()
    assert all(command in result.output for command in COMMANDS)


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_and_option_has_help(command):
    result = invoke(command, "--help")
    assert result.exit_code == 0
    described = typer.main.get_command(app).commands[command]
    assert described.help
    for parameter in described.params:
        assert parameter.help, parameter.name
        if parameter.param_type_name == "option":
            assert parameter.opts[0] in result.output


def test_solve_lists_the_programs_and_the_options_of_the_one_chosen():
    result = invoke("solve", "--program", "hint", "--help")
    assert all(name in result.stderr for name in programs.NAMES)
    assert "--hint" in result.stdout


def test_solve_refuses_an_unknown_program_and_names_the_others():
    result = invoke("solve", "--program", "alise_bob", "1 + 1")
    assert result.exit_code == 1
    assert "alice_bob" in result.stderr


def test_the_version_names_sglang_too():
    from importlib.metadata import version

    result = invoke("--version")
    assert result.exit_code == 0
    assert version("hogwild-sgl") in result.output
    assert version("sglang") in result.output


def test_an_unknown_command_is_a_usage_error():
    assert invoke("sevre").exit_code == 2


def test_serve_refuses_a_folder_that_is_not_there():
    result = invoke("serve", "/no/such/folder")
    assert result.exit_code == 1
    assert "no model folder /no/such/folder" in result.stderr
    assert "config.json" in result.stderr


def test_serve_refuses_a_folder_without_a_model(tmp_path):
    (tmp_path / "notes.txt").touch()
    result = invoke("serve", str(tmp_path))
    assert result.exit_code == 1
    assert "has no config.json" in result.stderr
    assert "notes.txt" in result.stderr


def test_serve_refuses_a_file(model):
    result = invoke("serve", str(model / "config.json"))
    assert result.exit_code == 1
    assert "is a file" in result.stderr


def test_serve_refuses_a_model_without_a_tokenizer_and_names_both_ways_out(model):
    (model / "tokenizer.json").unlink()
    result = invoke("serve", str(model))
    assert result.exit_code == 1
    assert "has no tokenizer" in result.stderr
    assert "--tokenizer-path" in result.stderr
    assert "--skip-tokenizer-init" in result.stderr


def test_serve_wants_the_model_before_options_for_sglang():
    result = invoke("serve", "--tp-size", "2", "Qwen/Qwen3-8B")
    assert result.exit_code == 1
    assert "MODEL comes first" in result.stderr


def test_serve_refuses_another_attention_backend(model):
    result = invoke(
        "serve", str(model), "--port", str(choose_port()), "--attention-backend", "triton"
    )
    assert result.exit_code == 1
    assert "--attention-backend triton would leave the hogwild patch out" in result.stderr


def test_serve_refuses_a_port_in_use_and_names_the_option(model):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        result = invoke("serve", str(model), "--port", str(taken.getsockname()[1]))
    assert result.exit_code == 1
    assert "in use by another program" in result.stderr
    assert "--port" in result.stderr


def test_check_says_that_nothing_answers_and_how_to_start_a_server():
    url = f"http://127.0.0.1:{choose_port()}"
    result = invoke("check", "--url", url)
    assert result.exit_code == 1
    assert f"No server answers at {url}" in result.stderr
    assert "hogwild serve" in result.stderr


def test_check_tells_another_web_server_from_sglang(other_server):
    result = invoke("check", "--url", other_server)
    assert result.exit_code == 1
    assert "is not an SGLang server" in result.stderr


def test_check_refuses_an_address_that_is_none():
    result = invoke("check", "--url", "localhost:30000")
    assert result.exit_code == 1
    assert "No server answers at localhost:30000" in result.stderr


def test_check_as_json_can_be_read_by_a_program():
    result = invoke("check", "--json", "--url", f"http://127.0.0.1:{choose_port()}")
    assert result.exit_code == 1
    found = json.loads(result.stdout)
    assert found["reachable"] is False
    assert "hogwild serve" in found["remedy"]


def test_demo_leaves_another_program_that_was_named_alone(other_server):
    result = invoke("demo", "--url", other_server)
    assert result.exit_code == 1
    assert "is not an SGLang server" in result.stderr


def test_solve_without_a_server_says_so():
    url = f"http://127.0.0.1:{choose_port()}"
    result = invoke("solve", "1 + 1", "--url", url)
    assert result.exit_code == 1
    assert f"Error: No server answers at {url}" in result.stderr
    assert "hogwild serve MODEL" in result.stderr


def test_demo_starts_no_server_for_another_machine():
    result = invoke("demo", "--url", "http://192.0.2.1:9")
    assert result.exit_code == 1
    assert "this machine" in result.stderr


def test_replay_refuses_a_folder_that_is_not_there(tmp_path):
    result = invoke("replay", str(tmp_path / "none"))
    assert result.exit_code == 1
    assert "There is no folder" in result.stderr


def test_replay_refuses_a_folder_without_cases(tmp_path):
    result = invoke("replay", str(tmp_path))
    assert result.exit_code == 1
    assert "not a reference case and holds none" in result.stderr


def test_replay_reports_a_broken_case_as_failed(tmp_path):
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "trace.json").write_text("{}")
    result = invoke("replay", str(tmp_path / "broken"))
    assert result.exit_code == 1
    assert result.stdout == "broken nan FAIL\n"
    assert "missing" in result.stderr
