"""``hogwild solve``: any of the programs, with that program's own options."""

from __future__ import annotations

from collections.abc import Sequence

import typer

from hogwild_sgl import programs
from hogwild_sgl.cli.console import err, progress, saying_stopped
from hogwild_sgl.errors import UserError


def run(name: str, args: Sequence[str]) -> None:
    """Hands ``args`` to the program's command line."""
    if name not in programs.NAMES:
        raise UserError(f"There is no program {name!r}.", f"There are {', '.join(programs.NAMES)}.")
    with saying_stopped(), progress("hogwild solve") as show:
        show(f"loading SGLang and the program {name}")
        # It is SGLang that takes seconds to import.
        program = programs.find(name)
        from hogwild_sgl.program.command import command
    if not args or "--help" in args:
        err.print(
            f"--program takes one of {', '.join(programs.NAMES)}. Below, {name}:",
            markup=False,
            highlight=False,
        )
    app = typer.Typer(add_completion=False, rich_markup_mode="markdown")
    app.command(help=program.about, no_args_is_help=True)(command(program))
    app(list(args), prog_name=f"hogwild solve --program {name}")
