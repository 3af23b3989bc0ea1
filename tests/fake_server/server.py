"""The fake server: what it knows and what it answers."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable
from http.server import ThreadingHTTPServer
from typing import Any

from hogwild_sgl.lang.endpoint import Endpoint
from tests.fake_server.handler import handler
from tests.fake_server.model import Script, Words, Writing, logprob, paragraphs
from tests.fake_server.teams import LAYOUTS, Board, Refused, Team


class _Quiet(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 256  # sixteen workers connect at once

    def handle_error(self, *_: Any) -> None:
        """Broken connections are part of the tests."""


class FakeServer:
    """A running server; a context manager.

    script: what the model writes. patched: False for plain SGLang. gathered: see Board.
    requests: every body received, as (path, body). before: called with path and body
    before a request is answered; may raise Refused.
    """

    def __init__(
        self,
        script: Script = paragraphs,
        *,
        patched: bool = True,
        gathered: bool = True,
        context: int = 8192,
        has_template: bool = True,
    ) -> None:
        self.words = Words()
        self.board = Board(self.words, script, gathered=gathered, context=context)
        self.script, self.patched, self.has_template = script, patched, has_template
        self.requests: list[tuple[str, Any]] = []
        self.before: Callable[[str, Any], None] = lambda path, body: None
        self.sockets: set[socket.socket] = set()
        self._http = _Quiet(("127.0.0.1", 0), handler(self))
        self.url = f"http://127.0.0.1:{self._http.server_address[1]}"
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.01,), daemon=True)
        self._thread.start()
        self.alive = True
        self._endpoints: list[Endpoint] = []

    def __enter__(self) -> FakeServer:
        return self

    def __exit__(self, *_: object) -> None:
        self.die()

    def die(self) -> None:
        """As if killed: no more connections, and those there are break."""
        if not self.alive:
            return
        self.alive = False
        self._http.shutdown()
        self._http.server_close()
        for one in list(self.sockets):
            try:
                one.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
        self.board.stop()

    def endpoint(self) -> Endpoint:
        """A backend for programs on this server."""
        self._endpoints.append(Endpoint(self.url))
        return self._endpoints[-1]

    def settle(self) -> None:
        """Waits until all teams are closed, then drops the backends' connections."""
        deadline = time.monotonic() + 10
        while self.alive and not all(team.closed for team in self.teams.values()):
            assert time.monotonic() < deadline, "a team is still open"
            time.sleep(0.005)
        time.sleep(0.02)  # whoever closed the last one may still read the reply
        for endpoint in self._endpoints:
            endpoint.close()

    @property
    def teams(self) -> dict[str, Team]:
        return self.board.teams

    @property
    def team(self) -> Team:
        """The only team that was ever opened."""
        (team,) = self.teams.values()
        return team

    def bodies(self, ending: str) -> list[Any]:
        """Bodies of the requests whose path ends so."""
        return [body for path, body in self.requests if path.split("?")[0].endswith(ending)]

    def open(self, body: dict[str, Any]) -> dict[str, Any]:
        names = body.get("workers") or []
        if not 2 <= len(names) <= 16:
            raise Refused(400, f"a team has 2 to 16 workers, got {len(names)}")
        if body.get("layout", "combined") not in LAYOUTS:
            raise Refused(400, f"unknown layout; known: {LAYOUTS}")
        ids = body.get("input_ids") or self.words.encode(body.get("prompt") or "")
        ids = ids or self.render(body)
        if not ids:
            raise Refused(400, "the prompt is empty")
        team = Team(
            name=f"hw-{len(self.teams) + 1}",
            names=names,
            prompt=ids,
            layout=body.get("layout", "combined"),
            seed=body.get("seed"),
            headers=body.get("formatting") or {},
            idle_timeout=body.get("idle_timeout"),
        )
        self.teams[team.name] = team
        return {
            "team": team.name,
            "workers": names,
            "layout": team.layout,
            "seed": team.seed,
            "prompt_tokens": len(ids),
            "header_tokens": {"others": 3, "own": 3},
            "context_length": self.board.context,
            "idle_timeout": team.idle_timeout,
        }

    def render(self, body: dict[str, Any]) -> list[int]:
        """The model's own chat template."""
        if not self.has_template:
            raise Refused(400, "this model has no chat template")
        messages = list(body.get("messages") or [])
        turn = messages.pop()["content"] if body.get("continue_final_message") else ""
        text = "".join(f"<|{m['role']}|>{m['content']}" for m in messages)
        return self.words.encode(text + "<|assistant|>") + self.words.encode(turn)

    def snapshot(self, team: Team) -> dict[str, Any]:
        with self.board.changed:
            live = {w: row for w, row in team.live.items()}
            return {
                "team": team.name,
                "state": "open",
                "layout": team.layout,
                "seed": team.seed,
                "workers": [
                    {
                        "worker": w,
                        "name": name,
                        "steps": sum(step["worker"] == w for step in team.steps),
                        "tokens": sum(s["tokens"] for s in team.steps if s["worker"] == w),
                        "live": w in live
                        and {
                            "rid": f"r{w}",
                            "number": live[w].number,
                            "fed_tokens": len(live[w].fed),
                            "text": self.words.decode([*live[w].fed, *live[w].output]),
                        }
                        or None,
                    }
                    for w, name in enumerate(team.names)
                ],
                "readers": len(team.readers),
                "prompt_tokens": len(team.prompt),
                "history_tokens": team.history,
                "team_forwards": team.forwards,
                "steps": [{k: v for k, v in s.items() if k != "ids"} for s in team.steps],
                "kv_tokens": team.history
                + 6
                + sum(len(row.fed) + len(row.output) for row in live.values()),
            }

    def generate(self, body: dict[str, Any]) -> list[dict[str, Any]]:
        """SGLang's /generate, one reply for each of ``n``."""
        ids = body.get("input_ids") or self.words.encode(body["text"])
        sampling = body.get("sampling_params") or {}
        replies = []
        for _ in range(sampling.get("n") or 1):
            text = self.script(Writing(None, None, self.words.decode(ids), "", sampling))
            whole = self.words.encode(text)
            output = whole[: sampling.get("max_new_tokens", 128)]
            text = self.words.decode(output)
            for stop in sampling.get("stop") or []:
                text = text.split(stop)[0]
            meta = {
                "prompt_tokens": len(ids),
                "completion_tokens": len(output),
                "cached_tokens": 0,
                "finish_reason": {"type": "length" if len(output) < len(whole) else "stop"},
            }
            if body.get("return_logprob"):
                start = body.get("logprob_start_len", 0)
                meta["input_token_logprobs"] = self.logprobs("", ids)[start:]
            replies.append({"text": text, "output_ids": output, "meta_info": meta})
        return replies

    def logprobs(self, before: str, ids: list[int]) -> list[list[Any]]:
        """[logprob, id, text] of each token; the first has no logprob."""
        entries: list[list[Any]] = []
        for at, token in enumerate(ids):
            text = self.words.decode([token])
            value = None if at == 0 else logprob(before + self.words.decode(ids[:at]), text)
            entries.append([value, token, text])
        return entries
