"""What a server says when it cannot start, and that it is plain SGLang without the flags."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from hogwild_sgl.errors import UserError
from hogwild_sgl.launch.ports import choose_port
from hogwild_sgl.launch.server_process import ServerProcess
from tests.servers.api import Api, wait

KV_TOKENS = 32768
BOTH = ["--attention-backend", "hogwild", "--radix-cache-backend", "hogwild"]

# Each argument list goes through ``python -m sglang.launch_server`` in a fork, so that
# SGLang is imported once. Prints, per list, the exit status and the end of the output.
LAUNCH_EACH = """
import json, os, runpy, sys, traceback
import sglang.srt.server_args

for arguments in json.loads(sys.argv[1]):
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.dup2(write, 1), os.dup2(write, 2), os.close(read)
        sys.argv = ["launch_server", *arguments]
        try:
            runpy.run_module("sglang.launch_server", run_name="__main__")
        except SystemExit as end:
            os._exit(end.code if isinstance(end.code, int) else 1)
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    os.close(write)
    with os.fdopen(read, errors="replace") as output:
        text = output.read()
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    print(json.dumps([status, text[-2000:]]), flush=True)
"""

REFUSED = [
    (BOTH[:2], "give both --attention-backend hogwild and --radix-cache-backend hogwild"),
    (BOTH[2:], "give both --attention-backend hogwild and --radix-cache-backend hogwild"),
    ([*BOTH, "--page-size", "16"], "use --page-size 1, not 16"),
    ([*BOTH, "--disable-radix-cache"], "drop --disable-radix-cache"),
    ([*BOTH, "--kv-cache-dtype", "fp8_e5m2"], "use --kv-cache-dtype auto, not fp8_e5m2"),
    ([*BOTH, "--allow-auto-truncate"], "drop --allow-auto-truncate"),
    ([*BOTH, "--tokenizer-worker-num", "2"], "drop --tokenizer-worker-num"),
]


def test_arguments_that_do_not_fit_end_the_start_with_the_remedy(tiny_model):
    usual = ["--model-path", str(tiny_model("llama"))]
    lists = [[*usual, *arguments] for arguments, _ in REFUSED]
    command = [sys.executable, "-c", LAUNCH_EACH, json.dumps(lists)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=True)
    outcomes = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("[")]
    assert len(outcomes) == len(REFUSED), done.stderr
    for (arguments, remedy), (status, output) in zip(REFUSED, outcomes, strict=True):
        assert status != 0 and remedy in output, f"{arguments}: {status}\n{output}"


def test_a_model_that_does_not_fit_ends_the_start_with_the_reason(tiny_model, tmp_path):
    scaling = {"rope_scaling": {"rope_type": "dynamic", "factor": 4.0}}
    server = ServerProcess(
        tiny_model("llama"),
        args=["--max-total-tokens", "500", "--json-model-override-args", json.dumps(scaling)],
        log_path=tmp_path / "server.log",
    )
    with pytest.raises(UserError, match="hogwild cannot serve this model: its rotary embedding"):
        server.start()
    assert server.returncode != 0
    assert "supported are default, linear, llama3 and YaRN" in server.log()


@contextmanager
def launched(command: list[str], log: Path) -> Iterator[Api]:
    """A server that a person starts with ``command``, as it stands, but for the port."""
    port = choose_port()
    with log.open("w") as output:
        process = subprocess.Popen(
            [*command, "--port", str(port)], stdout=output, stderr=output, start_new_session=True
        )
        try:
            api = Api(f"http://127.0.0.1:{port}")
            wait(lambda: process.poll() is not None or answers(api), f"a server, see {log}", 120)
            assert process.poll() is None, log.read_text(errors="replace")[-3000:]
            yield api
        finally:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def answers(api: Api) -> bool:
    try:
        return api.get("/health").status_code == 200
    except httpx.TransportError:
        return False


@pytest.mark.parametrize("command", ["python -m sglang.launch_server --model-path", "sglang serve"])
def test_the_documented_lines_start_a_server_with_teams(command, tiny_model, tmp_path):
    program, *rest = command.split()
    line = [str(Path(sys.executable).with_name(program)), *rest, str(tiny_model("llama")), *BOTH]
    with launched(line, tmp_path / "server.log") as api:
        assert api.get("/hogwild").json()["teams"] == 0
        with api.team(input_ids=[9, 10, 11]) as team:
            assert len(team.write(0, input_ids=[12], budget=3)["output_ids"]) == 3
        assert len(api.generate([9, 10], 5).json()["output_ids"]) == 5
        kv_tokens = api.loads()[0]["max_total_num_tokens"]
        assert kv_tokens == KV_TOKENS, "without a word about memory it leaves most of it alone"


@pytest.fixture(scope="module")
def plain(tiny_model, tmp_path_factory):
    """SGLang without the flags, the plugin installed."""
    args = ["--dtype", "float32", "--max-total-tokens", "2000"]
    log = tmp_path_factory.mktemp("plain") / "server.log"
    with ServerProcess(tiny_model("llama"), args=args, patched=False, log_path=log) as process:
        yield process


def test_without_the_flags_sglang_is_as_if_nothing_were_installed(plain):
    api = Api(plain.url)
    assert api.get("/hogwild").status_code == 404
    assert api.try_open(prompt="Add.").status_code == 404
    assert len(api.generate([9, 10], 5).json()["output_ids"]) == 5
    info = api.get("/server_info").json()
    assert info["attention_backend"] == "torch_native" and info["radix_cache_backend"] is None
    assert info["disable_overlap_schedule"] is False and info["enable_mixed_chunk"] is False
    assert api.post("/flush_cache").status_code == 200
    assert "hogwild:" not in plain.log_path.read_text()


def test_a_teams_request_on_a_server_without_teams_is_refused_with_the_remedy(plain):
    api = Api(plain.url)
    purpose = {"kind": "step", "team": "hw-1", "worker": 0}
    sampling = {"max_new_tokens": 2, "custom_params": {"hogwild": purpose}}
    reply = api.post("/generate", text="Hello", sampling_params=sampling)
    assert reply.status_code == 501
    assert "does not run teams: start it with --attention-backend hogwild" in reply.text
    assert len(api.generate([9, 10], 5).json()["output_ids"]) == 5
