"""Which SGLang the patch was tested with, and what happens with another."""

from __future__ import annotations

import os
from importlib.metadata import PackageNotFoundError, version

TESTED_SGLANG = ("0.5.23",)
ALLOW_UNTESTED = "HOGWILD_ALLOW_UNTESTED_SGLANG"


class UntestedSGLang(RuntimeError):
    """The installed SGLang is not one the patch was tested with."""


def package_version() -> str:
    try:
        return version("hogwild-sgl")
    except PackageNotFoundError:
        return "unknown (not installed as a package)"


def sglang_version() -> str:
    return version("sglang")


def require_tested_sglang() -> None:
    """Raise UntestedSGLang unless the version was tested or the user insists."""
    found = sglang_version()
    if found in TESTED_SGLANG or os.environ.get(ALLOW_UNTESTED) == "1":
        return
    raise UntestedSGLang(
        f"hogwild_sgl patches SGLang {', '.join(TESTED_SGLANG)}, but {found} is installed. "
        f"Install a tested version (pip install sglang=={TESTED_SGLANG[-1]}), or set "
        f"{ALLOW_UNTESTED}=1 to run with this one at your own risk."
    )
