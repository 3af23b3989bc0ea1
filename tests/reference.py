"""Finds the reference cases that may lie beside the project. Absent: there are none,
and the tests over them are not generated; the project's own cases cover the same ground."""

from __future__ import annotations

from pathlib import Path

REFERENCE = Path(__file__).resolve().parents[1].parent / "shared" / "reference"


def reference_cases() -> list[Path]:
    if not REFERENCE.is_dir():
        return []
    return sorted(folder.parent for folder in REFERENCE.glob("*/trace.json"))
