"""The socket side of the fake server: routes, replies and event streams."""

from __future__ import annotations

import json
import queue
import socket
from http.server import BaseHTTPRequestHandler
from typing import TYPE_CHECKING, Any

from tests.fake_server.teams import LAYOUTS, Refused, Team

if TYPE_CHECKING:
    from tests.fake_server.server import FakeServer


def handler(server: FakeServer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def setup(self) -> None:
            super().setup()
            server.sockets.add(self.connection)

        def finish(self) -> None:
            server.sockets.discard(self.connection)
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
