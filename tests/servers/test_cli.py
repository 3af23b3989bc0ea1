"""The commands with real servers: what they find, and that they leave nothing running."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
from pathlib import Path

import httpx
import psutil
import pytest
from typer.testing import CliRunner

from hogwild_sgl.cli.app import app
from hogwild_sgl.errors import UserError
from hogwild_sgl.launch.ports import choose_port, is_free
from hogwild_sgl.launch.server_process import ServerProcess
from tests.conftest import ARGS, ENVIRONMENT
from tests.unit.cli.processes import is_running, wait_until


class Hogwild:
    """``hogwild ...`` in a process of its own, in a session of its own as in a terminal."""

    def __init__(self, *arguments: str, **environment: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "hogwild_sgl", *arguments],
            env={**os.environ, **ENVIRONMENT, **environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
            # As a script's background jobs have it; Ctrl-C must work all the same.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_IGN),
        )
        self.lines: list[str] = []
        self._descendants: set[psutil.Process] = set()

    def read_until(self, text: str) -> None:
        """Reads its output up to a line with ``text`` in it."""
        for line in self.process.stdout:
            self.lines.append(line)
            if text in line:
                return
        pytest.fail(f"no {text!r} in:\n{''.join(self.lines)}")

    def descendants(self) -> set[psutil.Process]:
        self._descendants |= set(psutil.Process(self.process.pid).children(recursive=True))
        return self._descendants

    def finish(self) -> int:
        self.lines += self.process.stdout.readlines()
        return self.process.wait(60)

    def left_over(self) -> list[psutil.Process]:
        wait_until(lambda: not any(is_running(each.pid) for each in self._descendants), 10)
        return [each for each in self._descendants if is_running(each.pid)]

    def __enter__(self) -> Hogwild:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        self.process.stdout.close()


def test_check_finds_a_patched_server_healthy(server):
    result = CliRunner().invoke(app, ["check", "--json", "--url", server.url])
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    assert found["reachable"] and found["patched"] and found["healthy"]
    assert found["about"]["model"] == str(server.model)
    assert "combined" in found["about"]["layouts"]


def test_check_prints_what_the_server_has(server):
    result = CliRunner().invoke(app, ["check", "--url", server.url], env={"COLUMNS": "200"})
    assert result.exit_code == 0, result.output
    for word in ("patched", "layouts", "independent", "kernel", str(server.model)):
        assert word in result.stdout


def test_ctrl_c_stops_serve_with_all_it_started(tiny_model):
    port = choose_port()
    with Hogwild("serve", str(tiny_model("llama")), "--port", str(port), *ARGS) as hogwild:
        hogwild.read_until("Ready:")
        assert httpx.get(f"http://127.0.0.1:{port}/hogwild").json()["active"] is True
        assert len(hogwild.descendants()) >= 3
        hogwild.process.send_signal(signal.SIGINT)
        assert hogwild.finish() == 130
        assert hogwild.left_over() == []
        assert is_free(port)
        assert "KeyboardInterrupt" not in "".join(hogwild.lines)


def test_demo_starts_a_server_shows_both_workers_and_stops_it(tiny_model):
    url = f"http://127.0.0.1:{choose_port()}"
    arguments = ("demo", "--url", url, "--model", str(tiny_model("llama")), "--budget", "12")
    with Hogwild(*arguments) as hogwild:
        hogwild.read_until("Problem:")
        assert len(hogwild.descendants()) >= 3
        assert httpx.get(f"{url}/hogwild").json()["active"] is True
        assert hogwild.finish() == 0, "".join(hogwild.lines)
        output = "".join(hogwild.lines)
        assert "Alice" in output and "Bob" in output
        assert "forward passes" in output
        assert hogwild.left_over() == []


def test_the_demo_without_options_shares_out_a_list_of_sums_and_gets_it_right():
    url = f"http://127.0.0.1:{choose_port()}"
    with Hogwild("demo", "--url", url, "--workers", "3") as hogwild:
        hogwild.read_until("Sums: ")
        assert hogwild.finish() == 0, "".join(hogwild.lines)
        assert hogwild.left_over() == []
    rows = re.findall(r"^(.+?)  +(\d+) +12 of 12 +0 +right", "".join(hogwild.lines), re.MULTILINE)
    (together, passes), (alone, passes_alone) = rows
    assert (together, alone) == ("Alice, Bob and Carol", "Alice alone")
    assert 2 * int(passes) < int(passes_alone)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_while_the_demos_server_starts_leaves_nothing(tiny_model, number):
    url = f"http://127.0.0.1:{choose_port()}"
    arguments = ("demo", "--url", url, "--model", str(tiny_model("llama")))
    with Hogwild(*arguments) as hogwild:
        hogwild.read_until("importing SGLang")
        assert wait_until(hogwild.descendants)
        hogwild.process.send_signal(number)
        assert hogwild.finish() == 128 + number
        assert hogwild.left_over() == []


def test_a_server_started_with_the_patch_left_out_is_refused(tiny_model, tmp_path):
    # SGLANG_PLUGINS chooses among plugins; the platform has to stay.
    server = ServerProcess(
        tiny_model("llama"),
        args=[*ARGS, "--attention-backend", "hogwild"],
        env={**ENVIRONMENT, "SGLANG_PLUGINS": "hogwild_cpu"},
        log_path=tmp_path / "log",
    )
    with pytest.raises(UserError) as raised:
        server.start()
    assert server.returncode is not None
    assert "hogwild" in str(raised.value)


def test_two_real_servers_run_side_by_side(server, start_server):
    with start_server("llama") as other:
        assert other.process.port != server.process.port
        answers = []
        body = {"input_ids": [1, 2, 3], "sampling_params": {"temperature": 0, "max_new_tokens": 8}}
        threads = [
            threading.Thread(
                target=lambda url=each.url: answers.append(
                    httpx.post(f"{url}/generate", json=body, timeout=60).json()["output_ids"]
                )
            )
            for each in (server, other)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(answers) == 2
        assert answers[0] == answers[1]
        assert len(answers[0]) == 8


def test_a_log_tells_which_versions_run(server):
    from importlib.metadata import version

    log = Path(server.process.log_path).read_text()
    assert f"hogwild-sgl {version('hogwild-sgl')} on sglang {version('sglang')}" in log
