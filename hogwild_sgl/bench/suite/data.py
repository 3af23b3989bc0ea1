"""Problems: rows of a local JSON Lines file or of a data set on the Hugging Face hub."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hogwild_sgl.errors import UserError

Row = Mapping[str, Any]


@dataclass(frozen=True)
class Example:
    """One problem of a benchmark.

    id: stable and unique within the benchmark; a run is resumed by it.
    problem: the text that a program is given.
    gold: what grading needs (an answer, a list of answers, tests), as JSON values; never
        shown to a program.
    meta: what reports may group by (difficulty, year, ...).
    """

    id: str
    problem: str
    gold: Any = None
    meta: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not self.id:
            raise ValueError("an example needs an id")
        if not self.problem.strip():
            raise ValueError(f"example {self.id} has an empty problem text")

    @property
    def digest(self) -> str:
        """A short hash of problem and gold answer: tells changed data from the same data."""
        content = json.dumps([self.problem, self.gold], ensure_ascii=False, sort_keys=True)
        return hashlib.sha256(content.encode("utf-8", "surrogatepass")).hexdigest()[:16]


@dataclass(frozen=True)
class HubSource:
    """Where a benchmark's rows are on the hub.

    dataset: its id; config: its configuration, if it has several; split.
    files: names of JSON Lines files in the data set's repository, read directly; needed
        where the data set would otherwise run a loading script of its own.
    """

    dataset: str
    config: str | None = None
    split: str = "test"
    files: tuple[str, ...] = ()

    def __str__(self) -> str:
        parts = [self.dataset, self.config or "", self.split, *self.files]
        return " ".join(part for part in parts if part)


def local_rows(path: str | Path) -> list[dict[str, Any]]:
    """The rows of a JSON Lines file; blank lines are passed over.

    Raises `UserError`, naming file and line, for a missing file or a line that is not a
    JSON object.
    """
    path = Path(path)
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(
            f"Cannot read the data file {path}: {error}",
            "Give --data a JSON Lines file (one JSON object a line, UTF-8).",
        ) from error
    rows = []
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except json.JSONDecodeError as error:
            raise UserError(
                f"{path}, line {number} is not JSON: {error}",
                "A data file has one JSON object on each line.",
            ) from error
        if not isinstance(row, dict):
            raise UserError(
                f"{path}, line {number} is not a JSON object: {line[:60]!r}",
                'Each line looks like {"question": "...", "answer": "..."}.',
            )
        rows.append(row)
    if not rows:
        raise UserError(f"{path} has no rows.", "Is it the right file?")
    return rows


def hub_rows(source: HubSource) -> list[dict[str, Any]]:
    """The rows of a data set on the hub (downloaded once, then from its cache).

    Raises `UserError` if the ``datasets`` library is missing or the hub cannot be reached.
    """
    try:
        import datasets
    except ImportError as error:
        raise UserError(
            "Reading from the hub needs the `datasets` library.",
            "`pip install 'hogwild-sgl[bench]'` installs it; or give a local file: --data FILE.",
        ) from error
    try:
        if source.files:
            paths = [f"hf://datasets/{source.dataset}/{name}" for name in source.files]
            found = datasets.load_dataset(
                "json", data_files={source.split: paths}, split=source.split
            )
        else:
            found = datasets.load_dataset(source.dataset, source.config, split=source.split)
    except Exception as error:  # the library lets through errors of many others
        raise UserError(
            f"Cannot read {source} from the hub: {type(error).__name__}: {error}",
            "Without a network, give a local JSON Lines file with the same columns: --data FILE.",
        ) from error
    return [dict(row) for row in found]


def column(row: Row, names: Sequence[str], where: str) -> Any:
    """The first of the named columns that the row has; `UserError` lists what it has instead."""
    for name in names:
        if row.get(name) not in (None, ""):
            return row[name]
    raise UserError(
        f"{where} has no column {' or '.join(names)}; it has {sorted(row)}",
        "Give --data a file with the benchmark's columns (see docs/benchmarks.md).",
    )


def row_ids(rows: Sequence[Row], names: Sequence[str] = ("id", "question_id", "ID")) -> list[str]:
    """One id per row: the first named column that all rows have and that is unique, or the
    row's place in the file."""
    for name in names:
        values = [str(row.get(name, "")) for row in rows]
        if all(values) and len(set(values)) == len(values):
            return values
    return [f"row-{number:05d}" for number in range(len(rows))]


def examples_from(rows: Sequence[Row], make: Callable[[str, Row], Example]) -> list[Example]:
    """One example per row, with the row's id; errors name the row."""
    made = []
    for number, (name, row) in enumerate(zip(row_ids(rows), rows, strict=True), 1):
        try:
            made.append(make(name, row))
        except ValueError as error:
            raise UserError(
                f"Row {number} (id {name}): {error}", "Correct the data file."
            ) from error
    return made
