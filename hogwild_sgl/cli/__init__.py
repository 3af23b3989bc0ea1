"""The command line ``hogwild``."""

from __future__ import annotations


def main() -> None:
    """Console script ``hogwild``, also ``python -m hogwild_sgl``."""
    from hogwild_sgl.cli.app import app

    app(prog_name="hogwild")
