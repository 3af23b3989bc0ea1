"""Reading a server's log: how far the start has come, and why it failed."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

# The last pattern that a log line matches tells the stage; SGLang 0.5.23's wording.
_STAGES = (
    (re.compile(r"server_args=|ServerArgs\("), "starting its processes, each imports SGLang"),
    (re.compile(r"Init (parallel|torch distributed) begin"), "starting the scheduler"),
    (re.compile(r"Load weight begin"), "loading the weights"),
    (re.compile(r"Load weight end"), "allocating the KV cache"),
    (re.compile(r"Capture .*graph.* begin"), "capturing CUDA graphs"),
    (re.compile(r"Application startup complete"), "first forward"),
)
FIRST_STAGE = "importing SGLang"

# A traceback's last line: a builtin exception, or one with the name of its module.
_EXCEPTION = re.compile(r"^(?:[A-Z]\w*(?:Error|Exception)|(?:\w+\.)+[A-Z]\w*): .+")
_ARGPARSE = re.compile(r"error: (?:argument|unrecognized|the following)")
_PLUGIN_FAILED = re.compile(r"Failed to (?:load|execute) .*plugin.* hogwild")

_REMEDIES = (
    (
        re.compile(r"address already in use", re.I),
        "Another program took the port meanwhile; choose another with --port.",
    ),
    (
        re.compile(r"invalid choice: '?hogwild", re.I),
        "The hogwild-sgl package is not installed in the Python that runs the server: "
        "run `pip install -e .` in the project's folder with it.",
    ),
    (
        re.compile(r"unrecognized arguments"),
        "SGLang does not know that option; `python -m sglang.launch_server --help` lists its own.",
    ),
    (
        re.compile(r"out of memory|not enough memory|MemoryError|cannot allocate memory", re.I),
        "Give the KV cache less room (--max-total-tokens or --mem-fraction-static), "
        "or serve a smaller model.",
    ),
    (
        re.compile(r"LocalEntryNotFound|couldn't connect to|RepositoryNotFound|offline mode", re.I),
        "The model is not on this machine and the Hugging Face hub did not give it; "
        "give a folder that holds the model.",
    ),
)


def stage_of(line: str) -> str | None:
    """The start-up stage that begins with this log line, if any does."""
    for pattern, stage in reversed(_STAGES):
        if pattern.search(line):
            return stage
    return None


def cause_in(lines: Sequence[str]) -> str | None:
    """The line that most likely says why the server died."""
    for line in reversed(lines):
        if _EXCEPTION.search(line) or _ARGPARSE.search(line):
            return line.strip()
    return None


def remedy_in(lines: Iterable[str]) -> str:
    """What to do about it, where the log shows a well-known trouble; else ''."""
    text = "\n".join(lines)
    for pattern, remedy in _REMEDIES:
        if pattern.search(text):
            return remedy
    return ""


def plugin_failure_in(lines: Sequence[str]) -> list[str]:
    """The lines in which SGLang notes that the patch did not load, with their traceback."""
    for index, line in enumerate(lines):
        if _PLUGIN_FAILED.search(line):
            end = index + 1
            while end < len(lines) and not lines[end].startswith("["):
                end += 1
            return list(lines[index:end])
    return []
