"""The command line of a server."""

from __future__ import annotations

import sys

import pytest

from hogwild_sgl.errors import UserError
from hogwild_sgl.launch.server_flags import check_model, launch_command, value_of


def command(*args: str, patched: bool = True) -> list[str]:
    return launch_command("M", "127.0.0.1", 30000, args, patched=patched)


def test_the_two_backends_are_switched_on_and_other_options_passed_through():
    assert command("--tp-size", "2") == [
        *(sys.executable, "-m", "sglang.launch_server", "--model-path", "M"),
        *("--host", "127.0.0.1", "--port", "30000"),
        *("--attention-backend", "hogwild", "--radix-cache-backend", "hogwild"),
        *("--tp-size", "2"),
    ]


def test_flags_that_were_given_already_are_not_given_twice():
    found = command("--attention-backend=hogwild")
    assert "--attention-backend" not in found
    assert value_of(found, "--radix-cache-backend") == "hogwild"


def test_plain_sglang_gets_nothing_added():
    found = command(patched=False)
    assert found[3:] == ["--model-path", "M", "--host", "127.0.0.1", "--port", "30000"]


def test_another_radix_cache_is_a_contradiction():
    with pytest.raises(UserError, match="would leave the hogwild patch out"):
        command("--radix-cache-backend", "default")


@pytest.mark.parametrize(
    ("args", "value"),
    [
        (["--port", "1"], "1"),
        (["--port=2"], "2"),
        (["--port=2", "--port", "3"], "3"),
        (["--ports", "4"], None),
        (["--port"], None),
    ],
)
def test_a_flags_value_is_found_as_argparse_finds_it(args, value):
    assert value_of(args, "--port") == value


@pytest.mark.parametrize("model", ["Qwen/Qwen3-8B", "HuggingFaceTB/SmolLM2-135M-Instruct"])
def test_a_name_on_the_hub_is_left_to_sglang(model, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    check_model(model)


@pytest.mark.parametrize("model", ["./models/q", "~/nowhere/q", "a/b/c", "typo", "/q"])
def test_what_can_only_be_a_folder_must_exist(model, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match="no model folder"):
        check_model(model)


@pytest.mark.parametrize("args", [["--skip-tokenizer-init"], ["--tokenizer-path", "T"]])
def test_a_model_may_lack_a_tokenizer_when_another_way_is_given(tmp_path, args):
    (tmp_path / "config.json").touch()
    check_model(str(tmp_path), args)
