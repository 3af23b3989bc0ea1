"""Raw requests to a test's server, and a look at whether anything is left in it."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import httpx

PATIENCE = 60.0
FOREVER = {"temperature": 0, "ignore_eos": True}


class Api:
    """One server. Replies are httpx's, whatever their status."""

    def __init__(self, url: str):
        self.url = url
        self.http = httpx.Client(base_url=url, timeout=PATIENCE, trust_env=False)
        self._threads = ThreadPoolExecutor(32)

    def get(self, path: str) -> httpx.Response:
        return self.http.get(path)

    def post(self, path: str, **body: Any) -> httpx.Response:
        return self.http.post(path, json=body)

    def delete(self, path: str) -> httpx.Response:
        return self.http.delete(path)

    def abandon(self, path: str, seconds: float, **body: Any) -> None:
        """A POST whose client goes away after a while, without reading a reply."""
        request = self.http.build_request("POST", path, json=body)
        head = [f"POST {path} HTTP/1.1", *(f"{k}: {v}" for k, v in request.headers.items())]
        where = (request.url.host, request.url.port)
        with socket.create_connection(where, timeout=PATIENCE) as connection:
            connection.sendall("\r\n".join([*head, "", ""]).encode() + request.read())
            time.sleep(seconds)

    def later(self, work: Callable[..., Any], *args: Any, **kwargs: Any) -> Future:
        return self._threads.submit(work, *args, **kwargs)

    def try_open(self, **body: Any) -> httpx.Response:
        given = {"prompt", "input_ids", "messages"} & body.keys()
        return self.post("/hogwild/teams", **({} if given else {"prompt": "Add."}), **body)

    @contextmanager
    def team(self, **body: Any) -> Iterator[Team]:
        """An open team, closed in the end unless it is closed already."""
        reply = self.try_open(**body)
        assert reply.status_code == 200, reply.text
        team = Team(self, reply.json())
        try:
            yield team
        finally:
            assert team.close().status_code in (200, 410)

    def generate(self, prompt: list[int], budget: int, **more: Any) -> httpx.Response:
        """An ordinary request of SGLang's own, greedy."""
        sampling = FOREVER | {"max_new_tokens": budget}
        return self.post("/generate", input_ids=prompt, sampling_params=sampling, **more)

    def loads(self) -> list[dict]:
        """SGLang's own counts, per replica."""
        return self.get("/v1/loads").json()["loads"]

    def at_rest(self) -> None:
        """No team, no request, no KV slot that could not be evicted; then an empty tree."""
        wait(lambda: self.get("/hogwild").json()["teams"] == 0, "all teams to be closed")
        for count in ("num_running_reqs", "num_waiting_reqs", "num_used_tokens"):
            wait(
                lambda count=count: all(load[count] == 0 for load in self.loads()),
                f"SGLang to report {count} == 0 after a test",
            )
        assert self.post("/flush_cache").status_code == 200


class Team:
    """One open team. opened: the reply to opening it."""

    def __init__(self, api: Api, opened: dict):
        self.api, self.opened, self.name = api, opened, opened["team"]
        self.path = f"/hogwild/teams/{self.name}"

    def step(self, worker: int | str | None, text: str = "Go", budget: int = 4, **more: Any):
        """A step that ends by its budget, unless told otherwise."""
        sampling = FOREVER | {"max_new_tokens": budget} | more.pop("sampling", {})
        texts = {} if "input_ids" in more else {"text": text}
        body = {"worker": worker, "sampling_params": sampling, "end": "none"} | texts | more
        return self.api.post(f"{self.path}/steps", **body)

    def write(self, *args: Any, **kwargs: Any) -> dict:
        reply = self.step(*args, **kwargs)
        assert reply.status_code == 200, reply.text
        return reply.json()

    def say(self, **body: Any) -> httpx.Response:
        return self.api.post(f"{self.path}/say", **body)

    def abort(self, worker: int | str) -> httpx.Response:
        return self.api.post(f"{self.path}/abort", worker=worker)

    def snapshot(self) -> dict:
        reply = self.api.get(self.path)
        assert reply.status_code == 200, reply.text
        return reply.json()

    def close(self) -> httpx.Response:
        return self.api.delete(self.path)

    def live(self, worker: int) -> dict | None:
        return self.snapshot()["workers"][worker]["live"]

    def begin(self, worker: int, budget: int, written: int = 1, **more: Any) -> Future:
        """A step in another thread; returns when it has written something."""
        step = self.api.later(self.step, worker, budget=budget, **more)

        def under_way() -> bool:
            if step.done():
                raise AssertionError(
                    f"the step ended before it was looked at: {step.result().text}"
                )
            live = self.live(worker)
            return live is not None and len(live["text"]) >= written

        wait(under_way, f"worker {worker} to write")
        return step

    def wait_until_free(self, worker: int) -> None:
        wait(lambda: self.live(worker) is None, f"worker {worker} to be free")

    @contextmanager
    def streamed(self, worker: int, budget: int, **more: Any) -> Iterator[Iterator[dict]]:
        """The messages of a streamed step; leaving the block disconnects."""
        body = {"worker": worker, "text": "Go", "end": "none", "stream": True} | more
        body["sampling_params"] = FOREVER | {"max_new_tokens": budget}
        with self.api.http.stream("POST", f"{self.path}/steps", json=body) as response:
            assert response.status_code == 200, response.read()
            yield _messages(response)

    def listen(self, hold: bool = False) -> Listener:
        return Listener(self, hold)


class Listener:
    """The team's events, collected in another thread until the team closes or ``leave``."""

    def __init__(self, team: Team, hold: bool):
        self.events: list[dict] = []
        self._http = httpx.Client(base_url=team.api.url, timeout=PATIENCE, trust_env=False)
        self._path = f"{team.path}/events" + ("?hold=true" if hold else "")
        self._response: httpx.Response | None = None
        self._thread = threading.Thread(target=self._listen, daemon=True)
        self._thread.start()
        wait(lambda: self.events, "the first event")

    def _listen(self) -> None:
        try:
            with self._http.stream("GET", self._path) as self._response:
                for message in _messages(self._response):
                    self.events.append(message)
        except (httpx.HTTPError, httpx.StreamError, OSError):
            pass  # left, or the server is gone: what came is in events

    def leave(self) -> None:
        """Break the connection, as a client does that dies."""
        stream = self._response.extensions["network_stream"]
        stream.get_extra_info("socket").shutdown(2)
        self._thread.join(PATIENCE)
        self._http.close()

    def wait_for(self, kind: str) -> dict:
        return wait(lambda: next((e for e in self.events if e["type"] == kind), None), kind)

    def until_closed(self) -> list[dict]:
        """All events of a team that closes; its stream ends by itself."""
        self._thread.join(PATIENCE)
        assert not self._thread.is_alive(), f"the stream goes on after {self.events[-1]}"
        self._http.close()
        return self.events


def wait(condition: Callable[[], Any], what: str, seconds: float = PATIENCE) -> Any:
    """Poll until the condition holds; returns what it returned."""
    deadline = time.monotonic() + seconds
    while not (value := condition()):
        assert time.monotonic() < deadline, f"waited {seconds:.0f} s for {what}"
        time.sleep(0.01)
    return value


def error_of(reply: httpx.Response) -> dict:
    """The error of a refusal, in the one shape that all refusals have."""
    error = reply.json()["error"]
    assert error["status"] == reply.status_code and error["type"], reply.text
    return error


def _messages(response: httpx.Response) -> Iterator[dict]:
    for line in response.iter_lines():
        if line.startswith("data: ") and line != "data: [DONE]":
            yield json.loads(line[6:])
