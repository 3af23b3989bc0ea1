"""The README keeps what it promises."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from runtime_patch.versions import TESTED_SGLANG

ROOT = Path(__file__).parents[3]
TEXT = (ROOT / "README.md").read_text()


def test_its_program_runs(server, capsys):
    (program,) = re.findall(r"```python\n(.*?)```", TEXT, re.S)
    assert "http://127.0.0.1:30000" in program and "max_tokens=200" in program
    program = program.replace("http://127.0.0.1:30000", server.url).replace("=200", "=12")
    exec(compile(program, "README.md", "exec"), {})
    assert capsys.readouterr().out.strip()


@pytest.mark.parametrize("link", re.findall(r"\]\((?!http)([^)]+)\)", TEXT))
def test_its_links_lead_somewhere(link):
    assert (ROOT / link).exists()


def test_it_names_the_version_of_sglang_that_is_tested():
    assert f"SGLang {TESTED_SGLANG[-1]} exactly" in TEXT


@pytest.mark.parametrize("command", re.findall(r"^\.venv/bin/hogwild (\w+)", TEXT, re.M))
def test_its_commands_exist(command):
    import typer

    from hogwild_sgl.cli.app import app

    assert command in typer.main.get_command(app).commands
