"""The installed SGLang must be a tested one, unless the user insists."""

from __future__ import annotations

import pytest

from runtime_patch import versions
from runtime_patch.patches import PATCHES
from runtime_patch.versions import (
    ALLOW_UNTESTED,
    TESTED_SGLANG,
    UntestedSGLang,
    require_tested_sglang,
    sglang_version,
)


@pytest.fixture
def installed(monkeypatch):
    monkeypatch.delenv(ALLOW_UNTESTED, raising=False)
    return lambda version: monkeypatch.setattr(versions, "sglang_version", lambda: version)


def test_the_installed_sglang_is_a_tested_one():
    assert sglang_version() in TESTED_SGLANG
    require_tested_sglang()


@pytest.mark.parametrize("version", ["0.5.22", "0.5.24", "0.5.23.post1", "1.0"])
def test_another_version_is_refused_with_both_remedies(installed, version):
    installed(version)
    with pytest.raises(UntestedSGLang) as refused:
        require_tested_sglang()
    message = str(refused.value)
    assert version in message and f"pip install sglang=={TESTED_SGLANG[-1]}" in message
    assert f"{ALLOW_UNTESTED}=1" in message


@pytest.mark.parametrize(("value", "allowed"), [("1", True), ("0", False), ("yes", False)])
def test_the_user_may_insist_on_another_version(installed, monkeypatch, value, allowed):
    installed("0.9.9")
    monkeypatch.setenv(ALLOW_UNTESTED, value)
    if allowed:
        require_tested_sglang()
    else:
        with pytest.raises(UntestedSGLang):
            require_tested_sglang()


def test_every_patch_was_tested_with_every_tested_version():
    for patch in PATCHES:
        assert set(TESTED_SGLANG) <= set(patch.versions), patch.target
