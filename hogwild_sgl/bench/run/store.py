"""The results of a run on disk: written once each, never lost, safe to be killed.

A run's folder holds

    settings.json    what the run is; written first, checked when the run is resumed
    results.jsonl    one line per finished unit, appended and synced to the disk
    starts.jsonl     one line per start: when, with which command, how many runs it is of
    failures.jsonl   one line per failed attempt (the unit is tried again on resumption)
    lock             held by the process that writes

A line is written with one call and then fsynced, so that a killed process leaves at
most an unfinished last line, which is cut off when the folder is opened again: that unit
counts as not done.
"""

from __future__ import annotations

import fcntl
import json
import os
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from hogwild_sgl.errors import UserError

RESULTS, SETTINGS = "results.jsonl", "settings.json"
FAILURES, STARTS = "failures.jsonl", "starts.jsonl"


class Store:
    """The folder of one run, opened for writing; a context manager.

    Raises `UserError` if another process writes to the folder, if the run there was made
    with other settings, or if its results cannot be read.
    """

    def __init__(
        self,
        folder: str | Path,
        settings: Mapping[str, Any],
        notes: Mapping[str, Any] | None = None,
    ) -> None:
        """settings: what makes results comparable; must be the same on resumption.
        notes: what is worth knowing besides; kept from the first start."""
        self.folder = Path(folder)
        self.folder.mkdir(parents=True, exist_ok=True)
        self._mutex = threading.Lock()
        self._lock = open(self.folder / "lock", "a")  # noqa: SIM115 (held until close)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            self._lock.close()
            raise UserError(
                f"Another process is writing to {self.folder}.",
                "Wait for it, or give this run a folder of its own with --out.",
            ) from None
        try:
            self._settle(json.loads(json.dumps(settings)), notes or {})
            for name in (RESULTS, FAILURES, STARTS):
                cut_unfinished_line(self.folder / name)
            self._done = {record["unit"]: record["digest"] for record in read_results(self.folder)}
            self._results = open(self.folder / RESULTS, "ab", buffering=0)  # noqa: SIM115
            self._failures = open(self.folder / FAILURES, "ab", buffering=0)  # noqa: SIM115
        except BaseException:
            self._lock.close()
            raise

    def _settle(self, settings: dict[str, Any], notes: Mapping[str, Any]) -> None:
        path = self.folder / SETTINGS
        if not path.exists():
            new = path.with_suffix(".new")
            with open(new, "w", encoding="utf-8") as file:
                whole = {"settings": settings, "notes": notes}
                json.dump(whole, file, ensure_ascii=False, indent=2)
                file.flush()
                os.fsync(file.fileno())
            os.replace(new, path)
            _sync_folder(self.folder)
            return
        before, _ = read_settings(self.folder)
        changed = sorted(
            key for key in {*before, *settings} if before.get(key) != settings.get(key)
        )
        if changed:
            lines = [f"{k}: was {before.get(k)!r}, is {settings.get(k)!r}" for k in changed]
            raise UserError(
                f"The run in {self.folder} was made with other settings:\n" + "\n".join(lines),
                "Resume it with the same settings, or give this run another folder with --out.",
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        self._results.close()
        self._failures.close()
        self._lock.close()

    def is_done(self, unit: str, digest: str) -> bool:
        """Whether this unit has a result. `UserError` if that was for another problem text."""
        with self._mutex:
            before = self._done.get(unit)
        if before is not None and before != digest:
            raise UserError(
                f"The problem behind {unit} has changed since it was run.",
                "Use the same data file, or give this run a folder of its own with --out.",
            )
        return before is not None

    def add(self, record: Mapping[str, Any]) -> None:
        """Appends a finished unit's record (with ``unit`` and ``digest``) and syncs it.

        Raises ``ValueError`` if the unit has a result already.
        """
        with self._mutex:
            if record["unit"] in self._done:
                raise ValueError(f"{record['unit']} already has a result")
            _append(self._results, record)
            self._done[record["unit"]] = record["digest"]

    def add_failure(self, record: Mapping[str, Any]) -> None:
        """Appends a failed attempt; the unit stays undone."""
        with self._mutex:
            _append(self._failures, record)

    def add_start(self, record: Mapping[str, Any]) -> None:
        """Appends how the run was started this time."""
        with open(self.folder / STARTS, "ab", buffering=0) as file:
            _append(file, record)


def _append(file: Any, record: Mapping[str, Any]) -> None:
    line = json.dumps(record, ensure_ascii=False, allow_nan=False) + "\n"
    data = memoryview(line.encode("utf-8", "surrogatepass"))
    while data:  # a raw write may be partial, on a full disk for instance
        data = data[file.write(data) :]
    os.fsync(file.fileno())


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def cut_unfinished_line(path: Path) -> int:
    """Cuts off what follows the last line break; returns how many bytes that was."""
    if not path.exists():
        return 0
    with open(path, "r+b") as file:
        data = file.read()
        keep = data.rfind(b"\n") + 1
        if keep < len(data):
            file.truncate(keep)
            os.fsync(file.fileno())
        return len(data) - keep


def read_settings(folder: str | Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """Settings and notes of a run. `UserError` if there are none or they cannot be read."""
    path = Path(folder) / SETTINGS
    try:
        whole = json.loads(path.read_text(encoding="utf-8"))
        return whole["settings"], whole["notes"]
    except (OSError, json.JSONDecodeError, KeyError, TypeError) as error:
        raise UserError(
            f"{path} does not hold the settings of a run: {error}", "Is it a run's folder?"
        ) from error


def read_results(folder: str | Path) -> Iterator[dict[str, Any]]:
    """The records of a run. `UserError` for a damaged one."""
    return read_lines(Path(folder) / RESULTS)


def read_lines(path: Path) -> Iterator[dict[str, Any]]:
    """The lines of a JSON Lines file, none if there is no file. An unfinished last line is
    passed over; `UserError` names any other that is damaged."""
    if not path.exists():
        return
    with open(path, encoding="utf-8", errors="surrogatepass") as file:
        for number, line in enumerate(file, 1):
            if not line.endswith("\n"):
                return
            try:
                yield json.loads(line)
            except json.JSONDecodeError as error:
                raise UserError(
                    f"{path}, line {number} is damaged: {error}",
                    "Delete that line; its unit is then run again.",
                ) from error
