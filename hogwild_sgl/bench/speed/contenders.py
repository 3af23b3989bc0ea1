"""The ways of letting n workers write over one cache, each as a measurement.

- ``Hogwild``: a team on this project's server.
- ``Independent``: as many ordinary requests that share the prompt, on any SGLang server;
  the workers do not see each other.
- ``ByText``: the workers exchange finished steps as text; every step is a request whose
  prompt is the problem and all steps so far.
"""

from __future__ import annotations

import json
import random
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial

import httpx

from hogwild_sgl.bench.speed.gaps import gaps_between
from hogwild_sgl.bench.speed.streams import Rate, run_together

SPECIAL = 1000  # token ids below are left out: special tokens stand there


def prompt_ids(length: int, vocabulary: int, salt: int = 0) -> list[int]:
    """Random tokens; the same for the same length and salt, so that they stay cached."""
    numbers = random.Random(f"{length} {salt}")
    return [numbers.randrange(SPECIAL, vocabulary) for _ in range(length)]


def opening_ids(worker: int, number: int, vocabulary: int) -> list[int]:
    """What a worker's step of that number begins with."""
    return prompt_ids(8, vocabulary, salt=100 * worker + number)


@dataclass(frozen=True)
class Server:
    """url of a running server; vocabulary of its model."""

    url: str
    vocabulary: int

    def post(self, path: str, body: dict) -> dict:
        reply = httpx.post(self.url + path, json=body, timeout=1800, trust_env=False)
        _raise(reply)
        return reply.json()

    def lines(self, path: str, body: dict) -> Iterator[dict]:
        """Server-sent events of a streamed request."""
        with httpx.stream(
            "POST", self.url + path, json=body, timeout=1800, trust_env=False
        ) as reply:
            if reply.is_error:
                reply.read()
            _raise(reply)
            for line in reply.iter_lines():
                if line.startswith("data: {"):
                    yield json.loads(line[6:])


def _raise(reply: httpx.Response) -> None:
    if reply.is_error:
        raise RuntimeError(f"{reply.request.url}: {reply.status_code} {reply.text}")


def _sampling(tokens: int) -> dict:
    return {"max_new_tokens": tokens, "temperature": 0, "ignore_eos": True}


@dataclass(frozen=True)
class Hogwild:
    """Workers of one team, each writing one long step."""

    server: Server
    name = "hogwild"

    def warm_up(self, workers: int, cache: int, tokens: int) -> None:
        """Computes and caches the prompt, and does once what is measured then."""
        self.measure(workers, cache, tokens)

    def measure(self, workers: int, cache: int, tokens: int) -> Rate:
        with self._team(workers, prompt_ids(cache, self.server.vocabulary)) as team:
            return run_together([partial(self._step, team, w, tokens) for w in range(workers)])

    def gaps(self, workers: int, steps: int, step_tokens: int) -> list[int]:
        """Forwards between a worker's steps when each is sent once the last one has ended."""
        spans: list[list[tuple[int, int]]] = [[] for _ in range(workers)]
        with self._team(workers, prompt_ids(256, self.server.vocabulary)) as team:

            def write(worker: int) -> None:
                for events in self._steps(team, worker, steps, step_tokens):
                    at = {
                        event["type"]: event["step"]["team_forwards"]
                        for event in events
                        if event["type"] in ("start", "end")
                    }
                    spans[worker].append((at["start"], at["end"]))

            _seconds(write, workers)
        return [gap for some in spans for gap in gaps_between(some)]

    def kv_tokens(self, workers: int, history: int, tokens: int) -> int:
        """KV slots held when each of the workers has written ``tokens``."""
        with self._team(workers, prompt_ids(history, self.server.vocabulary)) as team:
            run_together([partial(self._step, team, w, tokens) for w in range(workers)])
            return httpx.get(f"{self.server.url}/hogwild/teams/{team}").json()["kv_tokens"]

    def collaborate(self, workers: int, cache: int, steps: int, step_tokens: int) -> float:
        """Tokens per second when every worker writes ``steps`` published steps."""
        prompt = prompt_ids(cache, self.server.vocabulary)
        with self._team(workers, prompt) as team:

            def write(worker: int) -> None:
                for events in self._steps(team, worker, steps, step_tokens):
                    for _ in events:
                        pass

            return workers * steps * step_tokens / _seconds(write, workers)

    def _team(self, workers: int, prompt: list[int]) -> ExitStack:
        stack = _Team()
        names = [f"worker {i}" for i in range(max(2, workers))]
        body = {"input_ids": prompt, "workers": names, "idle_timeout": 3600}
        stack.team = self.server.post("/hogwild/teams", body)["team"]
        path = f"{self.server.url}/hogwild/teams/{stack.team}"
        stack.callback(httpx.delete, path, timeout=120, trust_env=False)
        return stack

    def _step(self, team: str, worker: int, tokens: int) -> Iterator[int]:
        opening = prompt_ids(4, self.server.vocabulary, salt=worker)
        for event in self._events(team, worker, tokens, opening):
            if event["type"] == "text":
                yield len(event["output_ids"])

    def _steps(self, team: str, worker: int, steps: int, tokens: int) -> Iterator[Iterator[dict]]:
        """The events of one step after the other, each sent when the one before is read."""
        for number in range(steps):
            opening = opening_ids(worker, number, self.server.vocabulary)
            yield self._events(team, worker, tokens, opening)

    def _events(self, team: str, worker: int, tokens: int, opening: list[int]) -> Iterator[dict]:
        body = {
            "worker": worker,
            "input_ids": opening,
            "sampling_params": _sampling(tokens),
            "end": "none",
            "stream": True,
        }
        for event in self.server.lines(f"/hogwild/teams/{team}/steps", body):
            if event["type"] == "error":
                raise RuntimeError(event["error"]["message"])
            yield event


class _Team(ExitStack):
    """Closes the team when left; gives its name."""

    team = ""

    def __enter__(self) -> str:
        return self.team


@dataclass(frozen=True)
class Independent:
    """Ordinary requests with one prompt."""

    server: Server
    name: str = "independent"

    def warm_up(self, workers: int, cache: int, tokens: int) -> None:
        """Computes and caches the prompt, as a team's is, and writes a little."""
        prompt = prompt_ids(cache, self.server.vocabulary)
        self.server.post("/generate", {"input_ids": prompt, "sampling_params": _sampling(4)})

    def measure(self, workers: int, cache: int, tokens: int) -> Rate:
        prompt = prompt_ids(cache, self.server.vocabulary)
        return run_together(
            [partial(self._request, [*prompt, SPECIAL + w], tokens) for w in range(workers)]
        )

    def _request(self, ids: list[int], tokens: int) -> Iterator[int]:
        body = {"input_ids": ids, "sampling_params": _sampling(tokens), "stream": True}
        seen = 0
        for out in self.server.lines("/generate", body):
            now = out["meta_info"]["completion_tokens"]
            if now > seen:
                yield now - seen
                seen = now


@dataclass(frozen=True)
class ByText:
    """Agents that read each other's finished steps in their prompts."""

    server: Server
    name: str = "text"

    def collaborate(self, workers: int, cache: int, steps: int, step_tokens: int) -> float:
        """Tokens per second when every worker writes ``steps`` steps."""
        shared = prompt_ids(cache, self.server.vocabulary)
        self.server.post("/generate", {"input_ids": shared, "sampling_params": _sampling(1)})
        lock = threading.Lock()

        def write(worker: int) -> None:
            for number in range(steps):
                opening = opening_ids(worker, number, self.server.vocabulary)
                with lock:
                    ids = [*shared, *opening]
                reply = self.server.post(
                    "/generate", {"input_ids": ids, "sampling_params": _sampling(step_tokens)}
                )
                with lock:
                    shared.extend([*opening, *reply["output_ids"]])

        return workers * steps * step_tokens / _seconds(write, workers)


def _seconds(write, workers: int) -> float:
    threads = [threading.Thread(target=write, args=(w,)) for w in range(workers)]
    begin = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return time.perf_counter() - begin
