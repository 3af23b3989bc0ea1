"""A list of sums for a team: a task on which a tiny model can show collaboration on a CPU."""

from __future__ import annotations

from pathlib import Path

MARK = "worklist.json"  # in the folder of a model that was trained for it


def is_worklist_model(folder: Path) -> bool:
    """Whether ``bench.worklist.train`` made the model."""
    return (folder / MARK).is_file()
