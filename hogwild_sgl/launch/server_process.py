"""An SGLang server as a child process that never outlives its owner."""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

import httpx
import psutil

from hogwild_sgl.errors import UserError
from hogwild_sgl.launch.ports import choose_port, is_free
from hogwild_sgl.launch.process_group import kill_group, prepare_child
from hogwild_sgl.launch.server_flags import check_model, is_given, launch_command, value_of
from hogwild_sgl.launch.server_log import (
    FIRST_STAGE,
    cause_in,
    plugin_failure_in,
    remedy_in,
    stage_of,
)

_TAIL = 15
_POLL_SECONDS = 0.25
# SGLang's /health generates a token and gives up after 20 s.
_HEALTH_TIMEOUT = 25.0


class ServerProcess:
    """``python -m sglang.launch_server`` with the patch on, from start to stop.

        with ServerProcess(model, args=["--max-total-tokens", "20000"]) as server:
            httpx.get(f"{server.url}/hogwild")

    The server has a process group of its own, which is gone when the block is left,
    however it is left. On Linux it also ends when the thread that started it dies, even
    by SIGKILL; so start it in a thread that lives as long as the server is wanted.

    model: folder or hub name. args: passed through to SGLang. env: added to the
    environment. port: None chooses a free one. patched: False starts plain SGLang.
    log_path: the server's output; if None a temporary file, kept when something went wrong.
    on_line: called with each line of it, from another thread, until it is stopped; then no
    file is written unless log_path is given.
    on_stage: called as the start proceeds. Raises ``UserError`` if the server does not come
    up within ``start_timeout`` seconds, or without the patch.
    """

    def __init__(
        self,
        model: str | Path,
        args: Sequence[str] = (),
        env: Mapping[str, str] | None = None,
        port: int | None = None,
        *,
        host: str = "127.0.0.1",
        patched: bool = True,
        log_path: Path | None = None,
        start_timeout: float = 600.0,
        on_line: Callable[[str], None] | None = None,
        on_stage: Callable[[str], None] | None = None,
    ) -> None:
        self.model = str(model)
        self.args = [str(arg) for arg in args]
        self.env = dict(env or {})
        self.host = host
        self.port = choose_port(host) if port is None else port
        self.patched = patched
        self.log_path = log_path
        self.start_timeout = start_timeout
        self._on_line = on_line
        self._on_stage = on_stage or (lambda stage: None)
        self._lines: deque[str] = deque(maxlen=400)
        self._process: subprocess.Popen[str] | None = None
        self._pump: threading.Thread | None = None
        self._temporary_log = False
        self._interrupted = False

    @property
    def url(self) -> str:
        """Where this machine reaches the server."""
        scheme = "https" if is_given(self.args, "--ssl-certfile") else "http"
        host = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(self.host, self.host)
        return f"{scheme}://{host}:{self.port}"

    @property
    def pid(self) -> int:
        """Process id of the server's first process, also its process group."""
        if self._process is None:
            raise RuntimeError("the server has not been started")
        return self._process.pid

    @property
    def returncode(self) -> int | None:
        """None while it runs."""
        return None if self._process is None else self._process.poll()

    def log(self) -> str:
        """The last lines of the server's output."""
        return "\n".join(self._lines)

    def wait(self) -> int:
        """Block until the server ends by itself; its exit status."""
        assert self._process is not None
        return self._process.wait()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()
        if kind is None and self._temporary_log and self.log_path is not None:
            self.log_path.unlink(missing_ok=True)

    def start(self) -> None:
        """Start it and return when it serves. Nothing is left behind if that fails."""
        if self._process is not None:
            raise RuntimeError("the server has been started already")
        check_model(self.model, self.args)
        if not is_free(self.port, self.host):
            raise UserError(
                f"Port {self.port} on {self.host} is in use by another program.",
                f"Choose another with --port; `hogwild check --url {self.url}` says whether a "
                "server runs there already.",
            )
        command = launch_command(self.model, self.host, self.port, self.args, patched=self.patched)
        if self.log_path is None and self._on_line is None:
            descriptor, name = tempfile.mkstemp(prefix="hogwild-server-", suffix=".log")
            os.close(descriptor)
            self.log_path, self._temporary_log = Path(name), True
        self._on_stage(FIRST_STAGE)
        self._process = subprocess.Popen(
            command,
            env={**os.environ, "PYTHONUNBUFFERED": "1", **self.env},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,
            preexec_fn=prepare_child,
        )
        try:
            self._pump = threading.Thread(target=self._read_output, daemon=True)
            self._pump.start()
            self._wait_until_ready()
            if self.patched:
                self._require_patch()
        except BaseException:
            self.stop()
            raise

    def stop(self, grace: float = 5.0) -> None:
        """End the server and everything it started; quick when it has already ended."""
        process = self._process
        if process is None:
            return
        try:
            if process.poll() is None:
                # What SGLang says of an interrupt is a traceback that helps nobody.
                self._interrupted = True
                # SIGINT makes the web server leave at once; SIGTERM first drains requests.
                process.send_signal(signal.SIGINT)
                process.wait(grace)
        except subprocess.TimeoutExpired:
            pass
        finally:
            kill_group(process.pid)
            process.wait()
            if self._pump is not None:
                self._pump.join(timeout=grace)

    def _read_output(self) -> None:
        assert self._process is not None and self._process.stdout is not None
        file = self.log_path.open("a", buffering=1) if self.log_path else None
        try:
            for line in self._process.stdout:
                self._lines.append(line.rstrip("\n"))
                if file:
                    file.write(line)
                if self._on_line and not self._interrupted:
                    self._on_line(line.rstrip("\n"))
                if stage := stage_of(line):
                    self._on_stage(stage)
        finally:
            if file:
                file.close()

    def _wait_until_ready(self) -> None:
        deadline = time.monotonic() + self.start_timeout
        while True:
            if self.returncode is not None:
                raise self._died()
            if self._get("/health", _HEALTH_TIMEOUT) == 200:
                break
            if time.monotonic() > deadline:
                raise UserError(
                    f"The server did not come up within {self.start_timeout:.0f} s.",
                    self._where_to_look("A large model may need a longer --start-timeout."),
                )
            time.sleep(_POLL_SECONDS)
        if not self._listens_itself():
            raise UserError(
                f"Another program took port {self.port} while the server was starting.",
                "Choose another with --port.",
            )

    def _require_patch(self) -> None:
        status = self._get("/hogwild", _HEALTH_TIMEOUT)
        if status == 200:
            return
        shown = "\n".join(plugin_failure_in(list(self._lines))[-_TAIL:])
        raise UserError(
            f"The server came up without the hogwild patch (GET /hogwild gave {status}), "
            "so it was stopped.",
            self._where_to_look(
                "Check that hogwild-sgl is installed in the Python that runs the server and "
                "that SGLANG_PLUGINS and SGLANG_PLATFORM do not leave it out."
                + (f"\nThe log says:\n{shown}" if shown else "")
            ),
        )

    def _get(self, path: str, timeout: float) -> int | None:
        key = value_of(self.args, "--api-key")
        try:
            return httpx.get(
                self.url + path,
                timeout=timeout,
                headers={"Authorization": f"Bearer {key}"} if key else {},
                trust_env=False,
                # Only this machine's own server is asked, whatever its certificate says.
                verify=False,
            ).status_code
        except httpx.TransportError:
            return None

    def _listens_itself(self) -> bool:
        own = psutil.Process(self.pid)
        return any(
            connection.status == psutil.CONN_LISTEN and connection.laddr.port == self.port
            for process in (own, *own.children(recursive=True))
            for connection in process.net_connections("tcp")
        )

    def _died(self) -> UserError:
        if self._pump is not None:
            self._pump.join(timeout=5)
        lines = list(self._lines)
        status = self.returncode
        cause = cause_in(lines)
        ended = f"exit status {status}" if status is None or status >= 0 else f"signal {-status}"
        return UserError(
            f"The server ended while starting ({ended})" + (f": {cause}" if cause else "."),
            self._where_to_look(remedy_in(lines)),
        )

    def _where_to_look(self, remedy: str) -> str:
        parts = [remedy] if remedy else []
        if self._on_line is None:
            tail = [f"  {line}" for line in list(self._lines)[-_TAIL:]]
            parts += ["The log ends with:", *tail] if tail else ["The log is empty."]
        if self.log_path is not None:
            parts.append(f"Whole log: {self.log_path}")
        return "\n".join(parts)
