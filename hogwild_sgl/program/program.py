"""A program as the command line and the benchmarks see it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hogwild_sgl.program.settings import Settings
from hogwild_sgl.transcript import Result

if TYPE_CHECKING:
    from sglang.lang.ir import SglFunction

    from hogwild_sgl.lang.endpoint import Endpoint
    from hogwild_sgl.lang.events import Event

COMMON = (
    "formatting",
    "budget",
    "seed",
    "temperature",
    "top_p",
    "frequency_penalty",
    "finisher_tokens",
)
TEAM = (
    "layout",
    "step_tokens",
    "check_every",
    "check_who",
    "early_stop",
    "idle_timeout",
    "probes",
)

Watch = Callable[["Event"], None]


@dataclass(frozen=True)
class Program:
    """A way to solve a problem.

    function: an ``@sgl.function`` of (s, problem, settings, watch) that returns a Result.
    about: one line for people. options: the settings it uses beside the common ones.
    team: it needs a server with the patch, and tells ``watch`` what happens.
    """

    name: str
    function: SglFunction
    about: str
    options: tuple[str, ...] = ()
    team: bool = False

    def solve(
        self,
        problem: str,
        settings: Settings,
        *,
        url: str | None = None,
        backend: Endpoint | None = None,
        watch: Watch | None = None,
    ) -> Result:
        """Runs the program on one problem, on the server at ``url`` or on ``backend``.

        watch: called with a team's events as they come. Errors of the server are raised
        (see hogwild_sgl.errors). May be called from many threads with one backend.
        """
        from hogwild_sgl.lang.endpoint import Endpoint

        if (url is None) == (backend is None):
            raise ValueError("give either the server's url or a backend")
        if not problem.strip():
            raise ValueError("the problem is empty")
        if settings.probes and "probes" not in self.options:
            raise ValueError(f"{self.name} cannot be probed; run it once for each budget")
        with nullcontext(backend) if backend else Endpoint(url) as used:
            state = self.function.run(
                problem=problem,
                settings=settings,
                watch=watch,
                backend=used,
                **settings.sampling,
            )
            if state.error() is not None:
                raise state.error()
            result: Any = state.ret_value
            return result
