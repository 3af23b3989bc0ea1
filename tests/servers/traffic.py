"""Many clients of one server at once.

Teams of all layouts and sizes work at the same time; their workers write, are aborted,
disconnect and say things, readers read, voices speak from outside and ordinary requests
come in between. What is asked is drawn from a seed; how it interleaves is up to the
server, and its record tells.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

import httpx

from tests.servers.clients import Outcome, TeamClient, TeamSpec, generate, tokens

Job = Callable[[], Iterator[Outcome]]

TEAMS = (
    TeamSpec(2, "combined", "isolated", prompt=40),
    TeamSpec(3, "combined", "prompt", prompt=70),
    TeamSpec(5, "combined", "isolated", prompt=25, text=True, actions=5),
    TeamSpec(3, "interleaved", "isolated", prompt=50),
    TeamSpec(2, "interleaved", None, prompt=100),
    TeamSpec(2, "contiguous", "prompt", prompt=33, text=True),
    TeamSpec(5, "contiguous", "isolated", prompt=40, actions=5),
    TeamSpec(3, "independent", None, prompt=20, text=True),
)
ROUND = (
    *("write", "chain", "abort", "say", "write"),
    *("vanish", "write", "disconnect", "read", "chain"),
)


class Traffic:
    """Runs teams and ordinary requests at once and gathers the outcomes.

    ordinary: how many ordinary clients there are.
    """

    def __init__(
        self, http: httpx.Client, seed: int, specs: Sequence[TeamSpec] = TEAMS, ordinary: int = 3
    ):
        self.http, self.seed, self.specs, self.ordinary = http, seed, specs, ordinary
        self.teams: list[TeamClient] = []
        self.outcomes: list[Outcome] = []

    def run(self) -> None:
        """Every worker, every team's visitor and every ordinary client is a thread."""
        with ThreadPoolExecutor(max_workers=100) as pool:
            opened = [
                pool.submit(TeamClient, self.http, spec, self._draw("team", number))
                for number, spec in enumerate(self.specs)
            ]
            self.teams = [future.result() for future in opened]
            jobs = [self._ordinary(number) for number in range(self.ordinary)]
            for number, team in enumerate(self.teams):
                jobs += [self._worker(number, team, w) for w in range(team.spec.workers)]
                jobs.append(self._visitor(number, team))
            for future in [pool.submit(lambda job=job: list(job())) for job in jobs]:
                self.outcomes += future.result()

    def close(self) -> None:
        """Close all teams, one of them while it writes."""
        *others, last = self.teams
        self.outcomes.append(last.stop(0, tokens(self._draw("close"), 5), 3, "close"))
        for team in others:
            team.close()

    def _draw(self, *name: object) -> random.Random:
        return random.Random(f"{self.seed} {name}")

    def _worker(self, number: int, team: TeamClient, worker: int) -> Job:
        """Each worker starts elsewhere in the same round of actions."""
        draw = self._draw("worker", number, worker)
        first = number * 3 + worker

        def run() -> Iterator[Outcome]:
            for action in range(first, first + team.spec.actions):
                kind = ROUND[action % len(ROUND)]
                # Some openings are longer than a small prefill chunk.
                opening = tokens(draw, draw.choice((1, 2, 3, 5, 8, 8, 50)))
                if kind == "write":
                    if team.carried[worker] is not None and draw.random() < 0.4:
                        opening = []
                    rule, greedy = draw.random() < 0.7, draw.random() < 0.85
                    yield team.write(worker, opening, draw.randint(1, 36), rule, greedy)
                elif kind == "say":
                    yield team.say(worker, opening)
                elif kind == "read":
                    yield team.read(worker, opening, draw.randint(1, 12))
                elif kind == "chain":
                    yield from team.chain(worker, opening, tokens(draw, 3), draw.randint(4, 16))
                elif kind == "vanish":
                    team.vanish(worker, tokens(draw, 120), draw.uniform(0.001, 0.06))
                else:
                    yield team.stop(worker, opening, draw.randint(1, 10), kind)

        return run

    def _visitor(self, number: int, team: TeamClient) -> Job:
        draw = self._draw("visitor", number)

        def run() -> Iterator[Outcome]:
            for _ in range(3):
                yield team.read(None, tokens(draw, 3), draw.randint(1, 20))
                yield team.say(None, tokens(draw, draw.randint(1, 10)))
                worker = draw.randrange(team.spec.workers)
                yield team.read(worker, tokens(draw, 4), draw.randint(1, 20), idle=False)

        return run

    def _ordinary(self, number: int) -> Job:
        """Requests that begin with a team's prompt, and others."""
        draw = self._draw("ordinary", number)

        def run() -> Iterator[Outcome]:
            for count in range(5):
                shared = draw.choice(self.teams).prompt if draw.random() < 0.6 else []
                prompt = shared + tokens(draw, draw.randint(1, 50))
                rid = f"ordinary-{self.seed}-{number}-{count}"
                yield generate(self.http, rid, prompt, draw.randint(1, 25))

        return run
