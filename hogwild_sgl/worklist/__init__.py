"""A list of sums for a team: the task on which a tiny model shows collaboration on a CPU."""

from __future__ import annotations

from pathlib import Path

MARK = "worklist.json"  # in the folder of a model that was trained for it


def model_dir() -> Path:
    """The folder of the trained model, which comes with the package."""
    return Path(__file__).parent / "model"


def is_worklist_model(folder: Path) -> bool:
    """Whether ``bench.worklist.train`` made the model."""
    return (folder / MARK).is_file()
