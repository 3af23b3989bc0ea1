"""The socket side of the fake server."""

from __future__ import annotations

import json
import queue
import socket
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from hogwild_sgl.dsl.endpoint import Endpoint
from tests.hogwild_sgl.fake.model import Script, Words, Writing, logprob, paragraphs
from tests.hogwild_sgl.fake.teams import Board, Refused, Team

LAYOUTS = ["combined", "interleaved", "contiguous", "independent"]


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
        self._sockets: set[socket.socket] = set()
        self._http = _Quiet(("127.0.0.1", 0), _handler(self))
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
        for one in list(self._sockets):
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


def _handler(server: FakeServer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def setup(self) -> None:
            super().setup()
            server._sockets.add(self.connection)

        def finish(self) -> None:
            server._sockets.discard(self.connection)
            try:
                super().finish()
            except OSError:
                pass

        def log_message(self, *_: Any) -> None:
            pass

        def do_GET(self) -> None:
            self.answer(None)

        def do_DELETE(self) -> None:
            self.answer(None)

        def do_POST(self) -> None:
            raw = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            self.answer(json.loads(raw))

        def answer(self, body: Any) -> None:
            server.requests.append((self.path, body))
            try:
                server.before(self.path, body)
                self.route(body)
            except Refused as error:
                message = {"message": str(error), "type": error.kind}
                self.reply({"error": message}, error.status)
            except (BrokenPipeError, ConnectionResetError):
                self.close_connection = True

        def route(self, body: Any) -> None:
            path, _, query = self.path.partition("?")
            parts = path.strip("/").split("/")
            if path in ("/model_info", "/get_model_info"):
                self.reply({"model_path": "fake/words"})
            elif path == "/v1/tokenize":
                self.reply({"tokens": self.tokens(body)})
            elif path == "/generate":
                self.generate(body)
            elif parts[0] != "hogwild" or not server.patched:
                self.reply({"detail": "Not Found"}, 404)
            elif path == "/hogwild":
                self.reply({"active": True, "layouts": LAYOUTS, "model": "fake/words"})
            elif path == "/hogwild/teams":
                self.reply(server.open(body))
            else:
                self.team(server.board.find(parts[2]), parts[3:], body, query)

        def team(self, team: Team, rest: list[str], body: Any, query: str) -> None:
            board = server.board
            if self.command == "DELETE":
                board.close(team, "request")
                self.reply({"closed": True})
            elif not rest:
                self.reply(server.snapshot(team))
            elif rest == ["steps"]:
                self.step(team, body)
            elif rest == ["say"]:
                worker = body.get("worker")
                worker = None if worker is None else board.worker(team, worker)
                self.reply({"step": board.say(team, body["text"], worker)})
            elif rest == ["abort"]:
                worker = board.worker(team, body["worker"])
                self.reply({"aborted": board.abort(team, worker, body.get("number"))})
            elif rest == ["lockstep"]:
                board.lockstep(team, body["workers"])
                self.reply({"lockstep": body["workers"]})
            elif rest == ["events"]:
                self.events(team, hold="hold=true" in query)

        def step(self, team: Team, body: dict[str, Any]) -> None:
            row = server.board.write(team, body)
            before = server.board.view(team, row.worker)
            messages = iter(row.out.get, None)
            streaming = bool(body.get("stream"))
            if streaming:
                self.start_stream()
            for message in messages:
                if message["type"] == "end":
                    meta: dict[str, Any] = {"id": "x"}
                    if body.get("return_logprob"):
                        meta["input_token_logprobs"] = server.logprobs(before, row.fed)
                    message = {**message, "meta_info": meta}
                if streaming:
                    try:
                        self.event(message)
                    except OSError:
                        server.board.drop(row)
                        self.close_connection = True
                        return
                if message["type"] in ("end", "error"):
                    break
            if streaming:
                self.end_stream()
            elif message["type"] == "error":
                error = message["error"]
                self.reply({"error": error}, error["status"])
            else:
                self.reply(message)

        def events(self, team: Team, hold: bool) -> None:
            events: queue.Queue = queue.Queue()
            team.listeners.append(events)
            self.start_stream()
            self.event({"type": "snapshot", **server.snapshot(team)})
            while True:
                try:
                    event = events.get(timeout=0.05)
                except queue.Empty:
                    if not self.alive():
                        team.listeners.remove(events)
                        if hold:
                            server.board.close(team, "owner_gone")
                        self.close_connection = True
                        return
                    continue
                self.event(event)
                if event["type"] == "closed":
                    self.end_stream()
                    return

        def alive(self) -> bool:
            try:
                self.connection.settimeout(0)
                return self.connection.recv(1, socket.MSG_PEEK) != b""
            except BlockingIOError:
                return True
            except OSError:
                return False
            finally:
                self.connection.settimeout(None)

        def tokens(self, body: dict[str, Any]) -> Any:
            if body.get("messages"):
                return server.render(body)
            if isinstance(body["prompt"], list):
                return [server.words.encode(text) for text in body["prompt"]]
            return server.words.encode(body["prompt"])

        def generate(self, body: dict[str, Any]) -> None:
            replies = server.generate(body)
            if not body.get("stream"):
                self.reply(replies if len(replies) > 1 else replies[0])
                return
            self.start_stream()
            (whole,) = replies
            for at in range(1, len(whole["output_ids"]) + 1):
                text = server.words.decode(whole["output_ids"][:at])
                last = at == len(whole["output_ids"])
                meta = {**whole["meta_info"], "finish_reason": None}
                self.event(whole if last else {"text": text, "meta_info": meta})
            self.end_stream()

        def reply(self, data: Any, status: int = 200) -> None:
            raw = json.dumps(data).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(raw)))
            self.end_headers()
            self.wfile.write(raw)

        def start_stream(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/event-stream")
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()

        def event(self, data: dict[str, Any]) -> None:
            self.chunk(f"data: {json.dumps(data)}\n\n".encode())

        def end_stream(self) -> None:
            self.chunk(b"data: [DONE]\n\n")
            self.wfile.write(b"0\r\n\r\n")

        def chunk(self, raw: bytes) -> None:
            self.wfile.write(b"%x\r\n%s\r\n" % (len(raw), raw))
            self.wfile.flush()

    return Handler
