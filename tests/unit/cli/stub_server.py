"""Stands in for SGLang where a test is about the process and not about what it serves.

STUB_MODE says what it does: patched, plain (no /hogwild), stubborn (ignores signals and
has a child that does, too), dies, silent (never listens).
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, HTTPServer


class Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        known = {"/health"} | ({"/hogwild"} if os.environ["STUB_MODE"] != "plain" else set())
        self.send_response(200 if self.path in known else 404)
        self.end_headers()

    def log_message(self, *args: object) -> None:
        pass


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int)
    arguments, _ = parser.parse_known_args()
    mode = os.environ["STUB_MODE"]
    print("server_args=none", flush=True)
    if mode == "dies":
        print("first line\nsome.module.OddError: the tea is cold", flush=True)
        sys.exit(3)
    if mode == "stubborn":
        for kind in (signal.SIGINT, signal.SIGTERM):
            signal.signal(kind, signal.SIG_IGN)
        child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
        print(f"child={child.pid}", flush=True)
    if mode == "plain":
        print("[now] Failed to load plugin hogwild from group sglang.srt.plugins", flush=True)
        print("Traceback:\nImportError: no tea", flush=True)
    if mode == "silent":
        time.sleep(600)
    with suppress(KeyboardInterrupt):
        HTTPServer(("127.0.0.1", arguments.port), Handler).serve_forever()


main()
