"""SGLang's Engine inside a program, with a model that is split over two ranks."""

from __future__ import annotations

import json
import os
import subprocess
import sys

from tests.conftest import ENVIRONMENT
from tests.oracle.agreement import Sampled, compare
from tests.oracle.decoder import Decoder
from tests.oracle.record import read_record, replay_record

TWO_CORES = {"SGLANG_CPU_OMP_THREADS_BIND": "0|1"}


def test_an_engine_in_process_on_two_ranks_generates_and_runs_a_team(tiny_model, tmp_path):
    record, model = tmp_path / "record.jsonl", tiny_model("llama")
    env = os.environ | ENVIRONMENT | TWO_CORES | {"HOGWILD_RECORD": str(record)}
    command = [sys.executable, "-m", "tests.servers.engine_program", str(model)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=400, env=env)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    got = json.loads(done.stdout.splitlines()[-1])
    assert [step["step"]["name"] for step in got["steps"]] == ["Alice", "Bob", "Alice"]
    assert got["teams"] == 0 and len(got["snapshot"]["steps"]) == 3

    fed = ([70], [70], [got["steps"][0]["output_ids"][-1], 70])
    ordinary = got["generated"]["meta_info"]["id"]
    requests = {ordinary: Sampled(got["prompt"], got["generated"]["output_ids"])}
    for step, tokens in zip(got["steps"], fed, strict=True):
        requests[step["meta_info"]["id"]] = Sampled(tokens, step["output_ids"])
    lines = read_record(record)
    agreement = compare(
        replay_record(lines, Decoder.load(model), {ordinary: got["prompt"]}), requests
    )
    assert agreement.wrong == [] and agreement.equal + len(agreement.ties) == 4 * 12
    assert [line["event"] for line in lines].count("open") == 1, "one rank keeps the record"
