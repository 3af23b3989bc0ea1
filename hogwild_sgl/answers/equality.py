"""Are two mathematical answers equal? math-verify, in a process that may be lost.

math-verify bounds its time with SIGALRM, which works in a program's main thread only,
and not inside one long C call (``9^{9^{9^9}}`` stays in one). A benchmark grades many
answers from many threads, so the library runs in a child process, which sets the
kernel's own alarm before each question: when the time is up it simply dies, the answer
counts as not equal, and the next question gets a new child. The child also dies when
its parent does, at the latest when its alarm rings.
"""

from __future__ import annotations

import atexit
import json
import resource
import signal
import subprocess
import sys
import threading

SECONDS = 10
MEMORY_BYTES = 4 << 30


class Checker:
    """One child process that compares answers; safe to use from many threads."""

    def __init__(self, seconds: int = SECONDS) -> None:
        if seconds < 1:
            raise ValueError(f"the time for one comparison must be at least 1 s, got {seconds}")
        self._seconds = seconds
        self._lock = threading.Lock()
        self._child: subprocess.Popen[str] | None = None

    def _start(self) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-m", "hogwild_sgl.answers.equality", str(self._seconds)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )

    def equal(self, one: str, other: str, tolerance: float = 0.0) -> bool:
        """Whether the two LaTeX answers agree, to within ``tolerance`` if they are numbers.

        False when math-verify cannot tell within the time and memory allowed. Raises
        ``RuntimeError`` if the child cannot run at all (math-verify is not installed).
        """
        question = json.dumps([one, other, tolerance])
        with self._lock:
            if self._child is None:
                self._child = self._start()
                if self._child.stdout.readline() != "ready\n":
                    code = self._child.wait()
                    self._child = None
                    raise RuntimeError(
                        f"the answer checker ended with code {code} before it was ready; "
                        "install math-verify (pip install 'math-verify==0.9.0')"
                    )
            try:
                self._child.stdin.write(question + "\n")
                self._child.stdin.flush()
                line = self._child.stdout.readline()
            except BrokenPipeError:
                line = ""
            if not line:
                self._close()
                return False
            return json.loads(line)

    def _close(self) -> None:
        if self._child is not None:
            self._child.kill()
            self._child.wait()
            self._child.stdin.close()
            self._child.stdout.close()
            self._child = None

    def close(self) -> None:
        """Ends the child; the next question starts another."""
        with self._lock:
            self._close()


_shared = Checker()
atexit.register(_shared.close)


def equal(one: str, other: str, tolerance: float = 0.0) -> bool:
    """`Checker.equal` of the checker that the whole program shares."""
    return _shared.equal(one, other, tolerance)


def _values(parsed: list) -> list[float]:
    """The numbers in what math-verify parsed: one, or the members of a set or tuple, sorted."""
    from sympy import Equality, FiniteSet, Tuple

    expression = parsed[0]
    members = expression.args if isinstance(expression, (FiniteSet, Tuple)) else (expression,)
    numbers = [member.rhs if isinstance(member, Equality) else member for member in members]
    return sorted(float(number.evalf()) for number in numbers)


def _within(one: list, other: list, tolerance: float) -> bool:
    try:
        left, right = _values(one), _values(other)
    except (AttributeError, TypeError, ValueError):
        return False
    # A hair over the tolerance, so that an answer exactly at it does not fail by rounding.
    return len(left) == len(right) and all(
        abs(a - b) <= tolerance * (1 + 1e-9) for a, b in zip(left, right, strict=True)
    )


def _serve(seconds: int) -> None:
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY_BYTES, MEMORY_BYTES))
    from math_verify import parse, verify

    print("ready", flush=True)
    for line in sys.stdin:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(seconds)
        one, other, tolerance = json.loads(line)
        # Both ways round, since math-verify treats the first as the gold answer.
        left, right = (parse(f"${side}$", parsing_timeout=None) for side in (one, other))
        same = verify(left, right, timeout_seconds=None) or verify(
            right, left, timeout_seconds=None
        )
        if not same and tolerance > 0 and left and right:
            same = _within(left, right, tolerance)
        signal.alarm(0)
        print(json.dumps(bool(same)), flush=True)


if __name__ == "__main__":
    _serve(int(sys.argv[1]))
