"""The command line's options, one for each setting."""

from __future__ import annotations

import inspect
from typing import Annotated, Any

import typer

from hogwild_sgl.program.program import COMMON, Program
from hogwild_sgl.program.settings import Settings
from hogwild_sgl.prompts import find_formatting

_DEFAULTS = Settings()


def _pair(text: str) -> tuple[int, str]:
    passes, colon, words = text.partition(":")
    if not colon or not passes.strip().isdigit() or not words.strip():
        raise typer.BadParameter(
            f"a hint is PASSES:TEXT, for example 200:Try it mod 7. Got {text!r}"
        )
    return int(passes), words.strip()


# Setting -> type, default, help.
_TABLE: dict[str, tuple[Any, Any, str]] = {
    "formatting": (
        str,
        _DEFAULTS.formatting.name,
        "Texts to use: maths-en, maths-zh, code-en, code-zh, open-en, open-zh, or a TOML file.",
    ),
    "budget": (int, _DEFAULTS.budget, "Sequential forward passes the writers may use."),
    "seed": (int, 0, "Master seed; the same seed repeats the run."),
    "temperature": (float, _DEFAULTS.temperature, "Sampling temperature; 0 is greedy."),
    "top_p": (float, _DEFAULTS.top_p, "Nucleus sampling."),
    "frequency_penalty": (
        float,
        _DEFAULTS.frequency_penalty,
        "Makes tokens that a step has used rarer, -2 to 2; helps small models out of loops.",
    ),
    "finisher_tokens": (int, _DEFAULTS.finisher_tokens, "Most tokens of the final answer."),
    "probes": (list[int], [], "Read the answer after this many passes; may be repeated."),
    "early_stop": (bool, True, "End as soon as a finished step holds an answer."),
    "workers": (int, _DEFAULTS.workers, "How many workers (2 to 16 for a team)."),
    "names": (list[str], [], "A worker's name, once for each worker."),
    "layout": (
        str,
        _DEFAULTS.layout,
        "What workers see: combined, interleaved, contiguous or independent.",
    ),
    "step_tokens": (int | None, None, "Most tokens in one step."),
    "check_every": (int, _DEFAULTS.check_every, "Tokens between redundancy checks; 0 for none."),
    "check_who": (str, _DEFAULTS.check_who, "Who is asked: random, first or all."),
    "hints": (list[str], [], "PASSES:TEXT, said to all workers at that pass; may be repeated."),
    "listen": (bool, False, "Say each line that you type (or pipe in) to all workers at once."),
    "max_retries": (int, _DEFAULTS.max_retries, "How often a step in conflict is rewritten."),
    "idle_timeout": (float | None, 600.0, "Seconds after which the server closes a silent team."),
    "vote": (
        str,
        _DEFAULTS.vote,
        "Who answers: one finisher that reads all traces, or the majority of them.",
    ),
    "points": (int, _DEFAULTS.points, "Most parts in a plan."),
    "threads": (int, _DEFAULTS.threads, "Parts worked on at once; 0 for all."),
    "rounds": (int, _DEFAULTS.rounds, "How often the agents write."),
}
# Options that may be repeated have the name of one.
_SINGULAR = {"hints": ("--hint",), "probes": ("--probe",), "names": ("--name",)}


def parameters(program: Program) -> list[inspect.Parameter]:
    """The options of one program, for a function that typer reads."""
    found = []
    for name in dict.fromkeys((*COMMON, *program.options)):
        kind, default, text = _TABLE[name]
        option = typer.Option(*_SINGULAR.get(name, ()), help=text)
        found.append(
            inspect.Parameter(
                name,
                inspect.Parameter.KEYWORD_ONLY,
                default=default,
                annotation=Annotated[kind, option],
            )
        )
    return found


def settings_from(values: dict[str, Any], **changes: Any) -> Settings:
    """Settings from parsed options. typer.BadParameter says what is wrong with them."""
    given = dict(values)
    try:
        formatting = find_formatting(given.pop("formatting"))
        given["formatting"] = formatting.replace(**changes) if changes else formatting
        given["hints"] = tuple(_pair(text) for text in given.get("hints", ()))
        given["probes"] = tuple(given.get("probes", ()))
        given["names"] = tuple(given.get("names", ())) or None
        if given["names"] and "workers" in given:
            given["workers"] = len(given["names"])
        return Settings(**given)
    except (OSError, ValueError) as error:
        raise typer.BadParameter(str(error)) from error
