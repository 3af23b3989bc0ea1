"""``hogwild replay``: reference traces against this engine."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import typer

from hogwild_sgl.cli.console import err, progress, show_error
from hogwild_sgl.errors import UserError
from runtime_patch.debug.replay import BadCase, replay_case


def run(paths: Sequence[Path], tolerance: float) -> None:
    """One line on stdout per case, as soon as it is known; everything else on stderr."""
    cases = [case for path in paths for case in _cases_in(path)]
    if not cases:
        raise UserError("No case was given.", "A case is a folder with trace.json in it.")
    failed = 0
    for number, case in enumerate(cases, 1):
        difference = float("nan")
        try:
            with progress(f"Replaying {case.name}") as show:
                show(f"case {number} of {len(cases)}")
                difference = replay_case(case)
        except BadCase as error:
            show_error(UserError(str(error), error.remedy))
        ok = difference <= tolerance  # not so for nan
        failed += not ok
        typer.echo(f"{case.name} {difference:.3g} {'ok' if ok else 'FAIL'}")
    if failed:
        raise typer.Exit(1)


def _cases_in(path: Path) -> Iterator[Path]:
    """The folder itself, or the cases in it; the shell's ``*`` may bring files along."""
    path = path.resolve()
    if not path.exists():
        raise UserError(f"There is no folder {path}.", "Give folders with trace.json in them.")
    if path.is_file():
        err.print(f"Left out, as it is not a folder: {path}", markup=False, highlight=False)
    elif (path / "trace.json").exists():
        yield path
    else:
        inside = sorted(file.parent for file in path.glob("*/trace.json"))
        if not inside:
            raise UserError(f"{path} is not a reference case and holds none.")
        yield from inside
