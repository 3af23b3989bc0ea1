"""The package as installed: entry points, versions, and the tested set of packages."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from importlib.metadata import entry_points, packages_distributions, version
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from hogwild_sgl.launch import demo_model
from runtime_patch.versions import TESTED_SGLANG

ROOT = Path(__file__).parents[3]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
WANTED = PROJECT["dependencies"] + sum(PROJECT["optional-dependencies"].values(), [])


def constraints() -> dict[str, str]:
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    pins = [line.split("==") for line in lines if line and not line.startswith("#")]
    return {canonicalize_name(name): pin for name, pin in pins}


def test_every_constraint_pins_one_version_and_names_no_place():
    for line in (ROOT / "constraints.txt").read_text().splitlines():
        assert line.startswith("#") or re.fullmatch(r"[\w.-]+==[\w.!+-]+", line), line


@pytest.mark.parametrize("requirement", WANTED)
def test_the_constraints_satisfy_the_project(requirement):
    wanted = Requirement(requirement)
    pin = constraints().get(canonicalize_name(wanted.name))
    assert pin, f"{wanted.name} has no line in constraints.txt"
    assert Version(pin) in wanted.specifier


def test_the_installed_set_is_the_tested_set():
    pins = constraints()
    for name in ("sglang", "torch", "transformers", "typer", "ruff", "pytest"):
        assert version(name) == pins[name]


def test_the_pinned_sglang_is_one_that_the_patch_was_tested_with():
    assert constraints()["sglang"] in TESTED_SGLANG
    assert f"sglang=={constraints()['sglang']}" in PROJECT["dependencies"]


def test_the_installed_version_is_the_projects():
    assert version("hogwild-sgl") == PROJECT["version"]


def test_the_newest_release_in_the_changelog_is_this_version():
    headings = re.findall(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text(), re.M)
    releases = [heading for heading in headings if heading != "Unreleased"]
    assert releases[0] == PROJECT["version"]


@pytest.mark.parametrize("group", ["console_scripts", "sglang.srt.platforms", "sglang.srt.plugins"])
def test_entry_points_lead_to_something_callable(group):
    ours = [point for point in entry_points(group=group) if point.dist.name == "hogwild-sgl"]
    declared = PROJECT["entry-points"].get(group, {}) if "." in group else PROJECT["scripts"]
    assert {point.name: point.value for point in ours} == declared
    assert ours
    for point in ours:
        assert callable(point.load())


def test_the_demo_models_package_is_pinned_but_not_required():
    # pip would install llama-cpp-python with it.
    assert constraints()[demo_model.PACKAGE] == demo_model.VERSION
    assert not any(demo_model.PACKAGE in each for each in WANTED)


def test_make_without_a_suitable_python_says_what_to_install(tmp_path):
    for name in ("Makefile", "pyproject.toml", "constraints.txt"):
        (tmp_path / name).write_bytes((ROOT / name).read_bytes())
    tools = tmp_path / "bin"
    tools.mkdir()
    for tool in ("sh", "make"):
        found = subprocess.check_output(["which", tool], text=True).strip()
        (tools / tool).symlink_to(found)
    result = subprocess.run(
        [tools / "make", "demo"],
        cwd=tmp_path,
        env={"PATH": str(tools)},
        capture_output=True,
        text=True,
    )
    assert result.returncode != 0
    assert "No Python 3.11" in result.stderr
    assert "make PYTHON=/path/to/python3.11 demo" in result.stderr
    assert not (tmp_path / ".venv").exists()


def test_every_package_that_the_code_imports_is_pinned():
    own = {"hogwild_sgl", "runtime_patch", "tests"}
    imported: dict[str, Path] = {}
    for folder in own:
        for path in (ROOT / folder).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text())):
                names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
                if isinstance(node, ast.ImportFrom) and not node.level:
                    names = [node.module]
                roots = {name.split(".")[0] for name in names}
                # A script that is run by its path imports its neighbours.
                imported |= {r: path for r in roots if not path.with_name(f"{r}.py").exists()}
    homes, pins = packages_distributions(), constraints()
    for name in sorted(imported.keys() - own - set(sys.stdlib_module_names)):
        found = {canonicalize_name(home) for home in homes.get(name, [])}
        assert found & pins.keys(), f"{name}, imported in {imported[name]}, has no pin"
