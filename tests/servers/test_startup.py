"""What a server says when it cannot start, and that it is plain SGLang without the flags."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from hogwild_sgl.errors import UserError
from hogwild_sgl.launch.server_process import ServerProcess
from tests.servers.api import Api

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
    usual = ["--model-path", str(tiny_model("llama")), "--device", "cpu"]
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


@pytest.fixture(scope="module")
def plain(tiny_model, tmp_path_factory):
    """SGLang without the flags, the plugin installed."""
    args = ["--device", "cpu", "--dtype", "float32", "--max-total-tokens", "2000"]
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
