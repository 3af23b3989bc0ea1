"""Tests of a LiveCodeBench problem: read from its columns, and run against a program."""

from __future__ import annotations

import base64
import io
import json
import pickle
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import Any

from hogwild_sgl.bench.sandbox import Limits, run

KINDS = ("stdin", "functional")


@dataclass(frozen=True)
class CodeTest:
    """One test: ``stdin`` (what the program prints) or ``functional`` (what a function
    returns: one JSON argument per line of input, and the JSON of the result)."""

    input: str
    output: str
    kind: str

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise ValueError(f"a test's testtype is one of {KINDS}, got {self.kind!r}")


@dataclass(frozen=True)
class Verdict:
    """passed: whether all tests passed. tests: how many were run, the failing one included.

    outcome: ``passed``, ``wrong``, or the sandbox's word for how the program ended.
    """

    passed: bool
    tests: int
    outcome: str
    detail: str = ""


class _TextOnly(pickle.Unpickler):
    """Unpickles texts and numbers, and refuses everything that would run code."""

    def find_class(self, module: str, name: str) -> Any:
        raise ValueError(f"the packed tests want to load {module}.{name}; only plain data is read")


def unpack(tests: Any) -> list[dict[str, Any]]:
    """The test column as a list: a list already, JSON text, or JSON packed by pickle, zlib
    and base64, as the data set's private tests are. ``ValueError`` if it is none of them."""
    if tests in (None, ""):
        return []
    if isinstance(tests, str):
        try:
            tests = json.loads(tests)
        except json.JSONDecodeError:
            try:
                packed = zlib.decompress(base64.b64decode(tests, validate=True))
                tests = json.loads(_TextOnly(io.BytesIO(packed)).load())
            except (ValueError, zlib.error, pickle.UnpicklingError, EOFError, TypeError) as error:
                raise ValueError(f"the tests cannot be read: {error}") from error
    if not isinstance(tests, list):
        raise ValueError(f"the tests are no list, but {type(tests).__name__}")
    return tests


def read_tests(*columns: Any) -> list[CodeTest]:
    """All tests of the given columns, in order. ``ValueError`` if one lacks a field."""
    found = []
    for raw in (test for tests in columns for test in unpack(tests)):
        try:
            found.append(CodeTest(str(raw["input"]), str(raw["output"]), str(raw["testtype"])))
        except KeyError as error:
            raise ValueError(f"a test has no {error}; it has {sorted(raw)}") from None
    return found


def _same_number(left: str, right: str) -> bool:
    try:
        return Decimal(left) == Decimal(right)
    except InvalidOperation:
        return False


def same_output(printed: str, expected: str) -> bool:
    """Line by line and word by word; numbers may be written differently (1.0 and 1).

    White space at the ends of lines, and empty lines at the end, do not count.
    """
    left = [line.split() for line in printed.rstrip().split("\n")]
    right = [line.split() for line in expected.rstrip().split("\n")]
    return len(left) == len(right) and all(
        len(a) == len(b) and all(x == y or _same_number(x, y) for x, y in zip(a, b, strict=True))
        for a, b in zip(left, right, strict=True)
    )


def same_value(returned: str, expected: str) -> bool:
    """Two JSON texts with the same value; integers and floats compare as numbers."""
    try:
        return json.loads(returned) == json.loads(expected)
    except json.JSONDecodeError:
        return False


def check(
    code: str, tests: Sequence[CodeTest], function: str | None, limits: Limits | None = None
) -> Verdict:
    """Runs the program on each test in a sandbox of its own, up to the first failure.

    Raises ``ValueError`` if there are no tests, or a functional test has no function name.
    """
    if not tests:
        raise ValueError("a program without tests cannot be checked")
    for number, test in enumerate(tests, 1):
        functional = test.kind == "functional"
        if functional and not function:
            raise ValueError("a functional test needs the function's name (metadata.func_name)")
        result = run(code, test.input, function if functional else None, limits)
        if result.outcome != "ok":
            last = result.detail.rsplit("\n", 1)[-1]
            return Verdict(False, number, result.outcome, f"test {number}: {last}"[:200])
        same = same_value if functional else same_output
        if not same(result.stdout, test.output):
            shown = f"test {number}: {result.stdout[:80]!r} for {test.output[:80]!r}"
            return Verdict(False, number, "wrong", shown)
    return Verdict(True, len(tests), "passed")
