"""A list of sums for a team: the task on which a tiny model shows collaboration on a CPU."""

from __future__ import annotations

from pathlib import Path


def model_dir() -> Path:
    """The folder of the trained model, which comes with the package."""
    return Path(__file__).parent / "model"
