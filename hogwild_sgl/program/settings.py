"""What a run of a program can be told."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

from hogwild_sgl import prompts
from hogwild_sgl.driver.commands import WHO
from hogwild_sgl.prompts.formatting import MAX_WORKERS, Formatting


@dataclass(frozen=True)
class Settings:
    """Settings of all programs; each program uses some of them (``Program.options``).

    budget: sequential forward passes, the finisher's not counted. seed: the master seed.
    temperature, top_p, frequency_penalty: sampling; temperature 0 is greedy.
    finisher_tokens: most tokens of a finisher's or a probe's answer. probes: budgets at
    which the current answer is read. early_stop: end when a finished step holds an answer.

    workers: number of workers, agents, traces; names: theirs, or None for Alice, Bob, ...
    layout: what workers see of each other. step_tokens: most tokens in one step.
    check_every: generated tokens between redundancy checks, 0 for none; check_who: who is
    asked. hints: (passes, text) said into the history; listen: so is each line that is
    read from standard input, as it comes. max_retries: how often a step in
    conflict is written again. idle_timeout: seconds after which the server closes the
    team if nobody asks it for anything.

    vote: how self_consistency answers: ``finisher`` (one reads all traces) or
    ``majority``. points: most parts of a skeleton. threads: how many parts of it are
    worked on at once, 0 for all. rounds: how often agents exchange their texts.
    """

    formatting: Formatting = field(default_factory=prompts.formatting)
    budget: int = 1024
    seed: int = 0
    temperature: float = 0.6
    top_p: float = 0.95
    frequency_penalty: float = 0.0
    finisher_tokens: int = 64
    probes: tuple[int, ...] = ()
    early_stop: bool = True
    workers: int = 2
    names: tuple[str, ...] | None = None
    layout: str = "combined"
    step_tokens: int | None = None
    check_every: int = 1024
    check_who: str = "random"
    hints: tuple[tuple[int, str], ...] = ()
    listen: bool = False
    max_retries: int = 1
    idle_timeout: float | None = 600.0
    vote: str = "finisher"
    points: int = 8
    threads: int = 0
    rounds: int = 3

    def __post_init__(self) -> None:
        for name in ("budget", "finisher_tokens", "points", "rounds"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is at least 1, got {getattr(self, name)}")
        for name in ("check_every", "threads", "max_retries"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name} is not negative, got {getattr(self, name)}")
        if not 1 <= self.workers <= MAX_WORKERS:
            raise ValueError(f"workers is 1 to {MAX_WORKERS}, got {self.workers}")
        if self.names is not None and len(set(self.names)) != self.workers:
            raise ValueError(f"{self.workers} workers need as many different names: {self.names}")
        if self.temperature < 0 or not 0 < self.top_p <= 1:
            raise ValueError(
                f"temperature is not negative and top_p in (0, 1], got {self.temperature} and "
                f"{self.top_p}"
            )
        if not -2 <= self.frequency_penalty <= 2:
            raise ValueError(f"frequency_penalty is -2 to 2, got {self.frequency_penalty}")
        if self.vote not in ("finisher", "majority"):
            raise ValueError(f"vote is 'finisher' or 'majority', got {self.vote!r}")
        if self.check_who not in WHO:
            raise ValueError(f"check_who is one of {list(WHO)}, got {self.check_who!r}")
        beyond = [at for at in self.probes if not 1 <= at <= self.budget]
        if beyond:
            raise ValueError(f"probes at {beyond} are outside the budget of {self.budget}")

    @property
    def worker_names(self) -> tuple[str, ...]:
        return self.names or prompts.WORKER_NAMES[: self.workers]

    @property
    def sampling(self) -> dict[str, float]:
        """As arguments of ``sgl.gen`` and of a program's ``run``."""
        return {
            "temperature": self.temperature,
            "top_p": self.top_p,
            "frequency_penalty": self.frequency_penalty,
        }

    def to_dict(self, *names: str) -> dict[str, Any]:
        """These settings, for a result; the formatting whole."""
        every = asdict(self)
        return {name: every[name] for name in ("formatting", "budget", "seed", *names)}
