"""A server process: it comes up with the patch or says why not, and never outlives its owner."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from hogwild_sgl.errors import UserError
from hogwild_sgl.launch import server_process
from hogwild_sgl.launch.ports import choose_port, is_free
from hogwild_sgl.launch.server_process import ServerProcess
from tests.unit.cli.processes import is_running, wait_until

STUB = Path(__file__).with_name("stub_server.py")


@pytest.fixture
def stub(monkeypatch, tmp_path):
    """Makes ``ServerProcess`` start the stub in a given mode."""
    model = tmp_path / "model"
    model.mkdir()
    for name in ("config.json", "tokenizer.json"):
        (model / name).touch()
    monkeypatch.setattr(
        server_process,
        "launch_command",
        lambda model, host, port, args, patched: [sys.executable, str(STUB), "--port", str(port)],
    )

    def make(mode: str, **options) -> ServerProcess:
        options.setdefault("log_path", tmp_path / "log")
        return ServerProcess(model, env={"STUB_MODE": mode}, **options)

    return make


def test_a_server_runs_inside_the_block_and_is_gone_after_it(stub):
    stages = []
    with stub("patched", on_stage=stages.append) as server:
        assert is_running(server.pid)
        assert not is_free(server.port)
        pid, port = server.pid, server.port
    assert not is_running(pid)
    assert is_free(port)
    assert stages == ["importing SGLang", "starting its processes, each imports SGLang"]
    assert "server_args=none" in server.log_path.read_text()


def test_two_servers_run_side_by_side(stub, tmp_path):
    with stub("patched") as one, stub("patched", log_path=tmp_path / "other") as two:
        assert one.port != two.port
        assert is_running(one.pid) and is_running(two.pid)


def test_a_server_that_ignores_signals_is_killed_with_its_children(stub):
    server = stub("stubborn")
    server.start()
    child = int(server.log().split("child=")[1].split()[0])
    assert is_running(child)
    server.stop(grace=0.1)
    assert not is_running(server.pid)
    assert not is_running(child)


def test_an_exception_in_the_block_stops_the_server(stub):
    with pytest.raises(KeyboardInterrupt), stub("patched") as server:
        raise KeyboardInterrupt
    assert not is_running(server.pid)


def test_a_server_dies_with_an_owner_that_was_killed(tmp_path):
    owner = subprocess.Popen(
        [sys.executable, "-m", "tests.unit.cli.owner", str(tmp_path)],
        stdout=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[3],
        env={**os.environ, "STUB_MODE": "patched"},
    )
    pid = int(owner.stdout.readline())
    assert is_running(pid)
    owner.kill()
    owner.wait()
    assert wait_until(lambda: not is_running(pid))


def test_a_server_that_dies_while_starting_is_reported_with_the_end_of_its_log(stub):
    with pytest.raises(UserError) as raised:
        stub("dies").start()
    assert "exit status 3" in raised.value.message
    assert "OddError: the tea is cold" in raised.value.message
    assert "first line" in raised.value.remedy
    assert "Whole log:" in raised.value.remedy


def test_a_server_without_the_patch_is_stopped_and_the_reason_shown(stub):
    server = stub("plain")
    with pytest.raises(UserError, match="without the hogwild patch") as raised:
        server.start()
    assert "ImportError: no tea" in raised.value.remedy
    assert not is_running(server.pid)


def test_plain_sglang_may_be_started_on_purpose(stub):
    with stub("plain", patched=False) as server:
        assert is_running(server.pid)


def test_a_server_that_never_listens_is_given_up_and_stopped(stub):
    server = stub("silent", start_timeout=0.5)
    with pytest.raises(UserError, match="did not come up within"):
        server.start()
    assert not is_running(server.pid)


def test_a_port_in_use_is_refused_before_anything_is_started(stub):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        server = stub("patched", port=taken.getsockname()[1])
        with pytest.raises(UserError, match="in use by another program"):
            server.start()
    assert server.returncode is None


def test_a_foreign_server_on_the_port_is_not_taken_for_ours(stub):
    # Ours never listens, and while it starts another one takes its port.
    port = choose_port()
    started: list[subprocess.Popen] = []

    def take_port(stage: str) -> None:
        if stage != "importing SGLang":
            command = [sys.executable, str(STUB), "--port", str(port)]
            started.append(subprocess.Popen(command, env={**os.environ, "STUB_MODE": "patched"}))

    server = stub("silent", port=port, on_stage=take_port)
    try:
        with pytest.raises(UserError, match=f"Another program took port {port}"):
            server.start()
        assert not is_running(server.pid)
    finally:
        for foreign in started:
            foreign.kill()
            foreign.wait()


def test_stopping_twice_is_harmless(stub):
    server = stub("patched")
    server.start()
    server.stop()
    server.stop()
    assert server.returncode is not None


def test_output_goes_to_the_caller_line_by_line_when_asked_for(stub):
    lines = []
    with stub("patched", on_line=lines.append, log_path=None) as server:
        assert server.log_path is None
    assert lines == ["server_args=none"]


def test_a_chosen_port_is_below_the_range_for_outgoing_connections():
    assert choose_port() < 32768


def test_ports_chosen_at_the_same_time_differ():
    found = []
    threads = [threading.Thread(target=lambda: found.append(choose_port())) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 4
    assert len(set(found)) > 1


def test_a_server_gets_interrupts_though_its_owner_ignores_them(stub):
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with stub("patched") as server:
            os.kill(server.pid, signal.SIGINT)
            assert wait_until(lambda: server.returncode is not None)
    finally:
        signal.signal(signal.SIGINT, before)
