"""Clients that remember what they fed and what they were told."""

from __future__ import annotations

import json
import random
import time
from collections import defaultdict
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

import httpx

from tests.oracle.tiny_tokenizer import SIZE, SPECIAL, build_tokenizer

TOKENIZER = build_tokenizer()
NAMES = ("Alice", "Bob", "Carol", "Dave", "Erin")
# More than any client waits for before it stops a step.
LONG = 700
PATIENCE = 60.0
AT_RANDOM = {"temperature": 1, "top_p": 0.9, "min_p": 0.02}


def tokens(draw: random.Random, count: int) -> list[int]:
    """Random ordinary tokens."""
    return [draw.randrange(len(SPECIAL), SIZE) for _ in range(count)]


def encode(text: str, special: bool = False) -> list[int]:
    return TOKENIZER.encode(text, add_special_tokens=special).ids


@dataclass(frozen=True)
class Outcome:
    """A request as its client saw it.

    kind: step, reader, say or ordinary.
    rid: None for a say, which is known by its place among the published steps.
    fed: the tokens the client knows it fed, the carried one included.
    carries: the worker whose carried token it may have begun with besides, unknown to
        the client because that worker was writing meanwhile.
    complete: False if it was dropped in the middle; output is then what had arrived.
    rule, greedy, budget: whether the step-end rule held, temperature 0, max_new_tokens.
    step: the reply's record, empty for an ordinary or dropped request.
    """

    kind: str
    rid: str | None
    fed: list[int]
    output: list[int]
    team: str | None = None
    carries: int | None = None
    complete: bool = True
    rule: bool = False
    greedy: bool = True
    budget: int = 0
    step: dict = field(default_factory=dict)
    meta: dict = field(default_factory=dict)


@dataclass(frozen=True)
class TeamSpec:
    """headers: how they are prefilled; None for a team without any.
    prompt: tokens of the prompt, roughly when it is sent as text.
    text: prompt and headers are sent as text, otherwise as token ids.
    actions: how many things each worker does."""

    workers: int
    layout: str
    headers: str | None = "isolated"
    prompt: int = 40
    text: bool = False
    actions: int = 8


class TeamClient:
    """One team and the tokens its workers carry.

    One thread per worker; readers and voices from outside may come from others.
    """

    def __init__(self, http: httpx.Client, spec: TeamSpec, draw: random.Random):
        self.http, self.spec = http, spec
        self.prompt, self.header_others, self.header_own = [], [], []
        reply = self._post("/hogwild/teams", self._opening(draw))
        self.name, self.opened = reply["team"], reply
        self.carried: dict[int, int | None] = dict.fromkeys(range(spec.workers))
        self.ever_carried: dict[int, set[int]] = defaultdict(set)

    def _opening(self, draw: random.Random) -> dict:
        headers, body = {}, {"workers": NAMES[: self.spec.workers], "layout": self.spec.layout}
        if self.spec.text:
            words = ("one", "two", "and", "sum", "then", "x = 1")
            body["prompt"] = " ".join(draw.choice(words) for _ in range(self.spec.prompt // 2))
            self.prompt = encode(body["prompt"], special=True)
        else:
            self.prompt = body["input_ids"] = tokens(draw, self.spec.prompt)
        if self.spec.headers and self.spec.text:
            headers = {"header_others": "\n\n### The others:\n\n", "header_own": "\n\n### You:\n\n"}
            self.header_others, self.header_own = map(encode, headers.values())
        elif self.spec.headers:
            self.header_others = tokens(draw, draw.randint(2, 9))
            self.header_own = tokens(draw, draw.randint(2, 9))
            headers = {"header_others_ids": self.header_others, "header_own_ids": self.header_own}
        return body | {"formatting": headers | {"headers": self.spec.headers or "isolated"}}

    @property
    def path(self) -> str:
        return f"/hogwild/teams/{self.name}"

    def write(
        self, worker: int, opening: list[int], budget: int, rule: bool, greedy: bool = True
    ) -> Outcome:
        asked = _asked(opening, budget, **({} if greedy else AT_RANDOM))
        reply = self._write({"worker": worker, **asked, "end": "sentence" if rule else "none"})
        how = {"rule": rule, "greedy": greedy, "budget": budget}
        outcome = self._outcome("step", worker, opening, reply, **how)
        ended = outcome.step["finish"]["type"] == "eos"
        self._carry(worker, None if ended else outcome.output[-1])
        return outcome

    def chain(
        self, worker: int, first: list[int], second: list[int], budget: int
    ) -> tuple[Outcome, Outcome]:
        """Two steps, the second handed over while the first is being written."""
        asked = {"worker": worker, "end": "none"}
        body = {**asked, **_asked(first, budget, ignore_eos=True), "stream": True}
        behind = {**asked, **_asked(second, budget, ignore_eos=True), "after_live": True}
        following: Future | None = None
        with ThreadPoolExecutor(1) as pool, self._stream(body) as events:
            for event in events:
                following = following or pool.submit(self._write, behind)
                assert event["type"] != "error", event
            # The stream's last event is its end, with the whole reply.
            outcomes = [self._outcome("step", worker, first, event, budget=budget)]
            self._carry(worker, outcomes[0].output[-1])
            reply = following.result()
        outcomes.append(self._outcome("step", worker, second, reply, budget=budget))
        self._carry(worker, outcomes[1].output[-1])
        return tuple(outcomes)

    def stop(self, worker: int, opening: list[int], after: int, how: str) -> Outcome:
        """A step that is dropped once ``after`` tokens came: its worker is aborted, its
        client disconnects, or its team is closed (how: abort, disconnect, close)."""
        body = {"worker": NAMES[worker], **_asked(opening, LONG, ignore_eos=True)}
        fed, output, rid, refused = self._fed(worker, opening), [], "", None
        with self._stream({**body, "end": "none", "stream": True}) as events:
            for event in events:
                assert event["type"] != "end", f"{how} left the step to end by itself: {event}"
                if event["type"] == "error":
                    refused = event["error"]["status"]
                elif event["type"] == "start":
                    rid = event["step"]["rid"]
                else:
                    output += event["output_ids"]
                    if len(output) >= after:
                        if how == "disconnect":
                            break
                        self._end(worker, how)
                        after = LONG + 1
        if how == "disconnect":
            self.wait_until_free(worker)
        else:
            assert refused in (409, 410), f"{how} ended the stream with {refused}"
        return Outcome("step", rid, fed, output, self.name, complete=False)

    def vanish(self, worker: int, opening: list[int], seconds: float) -> None:
        """A step whose client goes away at once: queued, in its prefill or just begun."""
        before = self.snapshot()["workers"][worker]["steps"]
        body = {"worker": worker, **_asked(opening, LONG, ignore_eos=True), "end": "none"}
        try:
            self.http.post(f"{self.path}/steps", json=body, timeout=httpx.Timeout(60, read=seconds))
        except httpx.ReadTimeout:
            pass
        self.wait_until_free(worker)
        assert self.snapshot()["workers"][worker]["steps"] == before

    def read(
        self, worker: int | None, opening: list[int], budget: int, idle: bool = True
    ) -> Outcome:
        """idle: the worker named does not write meanwhile, so what it carries is known."""
        body = {"reader": True, "worker": worker, **_asked(opening, budget), "end": "none"}
        reply = self._write(body)
        fed_by = worker if idle else None
        outcome = self._outcome("reader", fed_by, opening, reply, budget=budget)
        return outcome if idle else replace(outcome, carries=worker)

    def say(self, worker: int | None, text: list[int]) -> Outcome:
        fed = self._fed(worker, text)
        step = self._post(f"{self.path}/say", {"worker": worker, "input_ids": text})["step"]
        if worker is not None:
            self._carry(worker, None)
        return Outcome("say", None, fed, [], self.name, step=step)

    def snapshot(self) -> dict:
        return self.http.get(self.path).raise_for_status().json()

    def close(self) -> None:
        self.http.delete(self.path).raise_for_status()

    def wait_until_free(self, worker: int) -> None:
        deadline = time.monotonic() + PATIENCE
        while self.snapshot()["workers"][worker]["live"] is not None:
            assert time.monotonic() < deadline, f"worker {worker} of {self.name} is never free"
            time.sleep(0.02)

    def _fed(self, worker: int | None, opening: list[int]) -> list[int]:
        carried = None if worker is None else self.carried[worker]
        return ([] if carried is None else [carried]) + opening

    def _carry(self, worker: int, token: int | None) -> None:
        self.carried[worker] = token
        if token is not None:
            self.ever_carried[worker].add(token)

    def _end(self, worker: int, how: str) -> None:
        if how == "close":
            self.close()
        else:
            assert self._post(f"{self.path}/abort", {"worker": worker})["aborted"]

    def _outcome(
        self, kind: str, worker: int | None, opening: list[int], reply: dict, **asked: object
    ) -> Outcome:
        fed, meta = self._fed(worker, opening), reply["meta_info"]
        told = {"step": reply["step"], "meta": meta, **asked}
        return Outcome(kind, meta["id"], fed, reply["output_ids"], self.name, **told)

    def _write(self, body: dict) -> dict:
        return self._post(f"{self.path}/steps", body)

    def _post(self, path: str, body: dict) -> dict:
        """A request of a client that vanished may still hold the worker for a moment."""
        deadline = time.monotonic() + PATIENCE
        while True:
            response = self.http.post(path, json=body)
            if response.status_code == 409 and "live step" in response.text:
                assert time.monotonic() < deadline, response.text
                time.sleep(0.02)
                continue
            assert response.status_code == 200, f"{path} {body}: {response.text}"
            return response.json()

    @contextmanager
    def _stream(self, body: dict) -> Iterator[Iterator[dict]]:
        with self.http.stream("POST", f"{self.path}/steps", json=body) as response:
            assert response.status_code == 200, response.read()
            data = (line[6:] for line in response.iter_lines() if line.startswith("data: "))
            yield (json.loads(line) for line in data if line != "[DONE]")


def generate(http: httpx.Client, rid: str, prompt: list[int], budget: int) -> Outcome:
    """An ordinary request of SGLang's own."""
    body = {"rid": rid, **_asked(prompt, budget)}
    reply = http.post("/generate", json=body).raise_for_status().json()
    meta = reply["meta_info"]
    return Outcome("ordinary", rid, prompt, reply["output_ids"], budget=budget, meta=meta)


def held(http: httpx.Client, expected: int) -> int:
    """KV slots that are neither free nor evictable: what open teams keep, when nothing runs.

    SGLang counts now and then; waits a while for ``expected``."""
    deadline = time.monotonic() + 10
    while True:
        (load,) = http.get("/v1/loads").raise_for_status().json()["loads"]
        if load["num_used_tokens"] == expected or time.monotonic() > deadline:
            return load["num_used_tokens"]
        time.sleep(0.1)


def _asked(fed: list[int], budget: int, **more: object) -> dict:
    sampling = {"temperature": 0, "max_new_tokens": budget, **more}
    return {"input_ids": fed, "sampling_params": sampling}


def first_end(outcome: Outcome) -> int | None:
    """Index of the output token at which the step-end rule says the step ends.

    None: at none of them. Only for steps without code fences and ``$$``."""
    text = [TOKENIZER.decode([token], skip_special_tokens=False) for token in outcome.output]
    before = TOKENIZER.decode(outcome.fed, skip_special_tokens=False)
    for index, piece in enumerate(text):
        at = piece.find("\n\n")
        if at >= 0 and (before + piece[:at])[-1:] in (".", "?", "!", "。"):
            return index
        before += piece
    return None
