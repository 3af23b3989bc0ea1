"""What ``import hogwild_sgl as hogwild`` gives to a program."""

from __future__ import annotations

import ast
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

import hogwild_sgl as hogwild
from hogwild_sgl import errors


def seen_by_a_type_checker() -> set[str]:
    """The names that the module imports under TYPE_CHECKING."""
    body = ast.parse(Path(hogwild.__file__).read_text()).body
    (checked,) = [node for node in body if isinstance(node, ast.If)]
    return {alias.asname for node in checked.body for alias in node.names}


def test_a_type_checker_sees_the_names_that_a_program_gets():
    assert seen_by_a_type_checker() == set(hogwild.__all__) - {"__version__"}
    assert Path(hogwild.__file__).with_name("py.typed").exists()


@pytest.mark.parametrize("name", hogwild.__all__)
def test_every_name_is_there_and_documented(name):
    found = getattr(hogwild, name)
    if callable(found):
        assert found.__doc__ and found.__doc__.strip(), f"{name} has no docstring"


def test_every_error_that_a_program_can_meet_is_exported():
    ours = {
        name
        for name, value in vars(errors).items()
        if isinstance(value, type) and issubclass(value, errors.UserError)
    }
    assert ours <= set(hogwild.__all__)


def test_the_version_is_the_installed_packages():
    assert hogwild.__version__ == version("hogwild-sgl")


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="has no attribute 'forks'"):
        _ = hogwild.forks


def test_importing_it_does_not_load_sglang():
    code = "import sys, hogwild_sgl; sys.exit('sglang' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
