"""Each patch finds SGLang's side as it was written for, and notices when it has moved."""

from __future__ import annotations

import inspect
import pkgutil
from types import FunctionType

import pytest

from runtime_patch.patches import PATCHES
from runtime_patch.patches.base import Patch, PatchMoved

NAMES = [patch.target.removeprefix("sglang.srt.") for patch in PATCHES]
every_patch = pytest.mark.parametrize("patch", PATCHES, ids=NAMES)


def replaced(monkeypatch, patch: Patch, function) -> None:
    """Put ``function`` where the patch's target is."""
    owner, _, name = patch.target.rpartition(".")
    kept = inspect.getattr_static(pkgutil.resolve_name(owner), name)
    wrapper = type(kept) if isinstance(kept, classmethod | staticmethod) else lambda f: f
    monkeypatch.setattr(pkgutil.resolve_name(owner), name, wrapper(function))


def function_with(parameters: tuple[str, ...]) -> FunctionType:
    namespace: dict = {}
    exec(f"def function({', '.join(parameters)}): pass", namespace)
    return namespace["function"]


@every_patch
def test_the_patch_fits_the_installed_sglang(patch):
    patch.check()


@every_patch
def test_a_target_that_is_gone_is_noticed(patch, monkeypatch):
    owner, _, name = patch.target.rpartition(".")
    monkeypatch.delattr(pkgutil.resolve_name(owner), name)
    with pytest.raises(PatchMoved, match=f"{name} is gone"):
        patch.check()


@every_patch
def test_a_new_parameter_is_noticed(patch, monkeypatch):
    replaced(monkeypatch, patch, function_with((*patch.parameters, "added_lately")))
    with pytest.raises(PatchMoved, match="added_lately"):
        patch.check()


@pytest.mark.parametrize("patch", [p for p in PATCHES if p.relies_on], ids=lambda p: p.target[-40:])
def test_a_piece_of_source_that_has_gone_is_noticed(patch, monkeypatch):
    source = inspect.getsource
    monkeypatch.setattr(inspect, "getsource", lambda f: source(f).replace(patch.relies_on[0], ""))
    with pytest.raises(PatchMoved, match="no longer contains"):
        patch.check()


def test_no_two_patches_share_a_target_and_each_says_why_it_is_there():
    assert len({patch.target for patch in PATCHES}) == len(PATCHES)
    for patch in PATCHES:
        assert "Why" in inspect.getdoc(type(patch)), patch.target
