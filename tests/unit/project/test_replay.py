"""``hogwild replay``: forced traces through SGLang, compared with reference logits."""

from __future__ import annotations

import json
import re

import numpy as np
import pytest
from typer.testing import CliRunner

from hogwild_sgl.cli.app import app
from runtime_patch.debug.replay import TOLERANCE, BadCase, read_case, replay_case
from tests.oracle.cases import CaseSpec, write_case
from tests.oracle.tiny_models import make_model
from tests.reference import reference_cases

# What the shared cases lack: families, worker counts, layouts, headers after the prompt.
WRITTEN = {
    "llama-w5-combined-mixed": ("llama", CaseSpec(5, "combined", seed=1)),
    "qwen3-w3-interleaved-mixed": ("qwen3", CaseSpec(3, "interleaved", seed=2)),
    "yarn-w3-contiguous-separate": ("yarn", CaseSpec(3, "contiguous", "separate", seed=3)),
    "qwen2-w2-independent-mixed": ("qwen2", CaseSpec(2, "independent", seed=4)),
    "linear-w4-combined-mixed": ("linear", CaseSpec(4, "combined", seed=5)),
    "glm4-w3-combined-mixed": ("glm4", CaseSpec(3, "combined", seed=6)),
    "stablelm-w2-combined-separate": ("stablelm", CaseSpec(2, "combined", "separate", seed=7)),
    "llama3rope-w2-after-prompt": ("llama3rope", CaseSpec(2, "combined", headers="prompt", seed=8)),
}


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    root = tmp_path_factory.mktemp("cases")
    for name, (family, spec) in WRITTEN.items():
        write_case(make_model(root / name, family), spec)
    return root


@pytest.mark.parametrize("folder", reference_cases(), ids=lambda folder: folder.name)
def test_the_engine_agrees_with_every_shared_reference_case(folder):
    assert replay_case(folder) < TOLERANCE


@pytest.mark.parametrize("name", WRITTEN)
def test_the_engine_agrees_with_the_dense_oracle(written, name):
    assert replay_case(written / name) < TOLERANCE


def test_one_wrong_logit_fails_the_case_and_the_command_exits_1(written, tmp_path):
    name = "llama-w5-combined-mixed"
    bad = tmp_path / "bad"
    bad.mkdir()
    for file in (written / name).iterdir():
        (bad / file.name).write_bytes(file.read_bytes())
    with np.load(written / name / "logits.npz") as arrays:
        logits = {key: arrays[key].copy() for key in arrays.files}
    logits["f3"][0, 7] += 0.01
    np.savez(bad / "logits.npz", **logits)
    result = CliRunner().invoke(app, ["replay", str(written / name), str(bad)])
    lines = result.stdout.strip().splitlines()
    assert re.fullmatch(rf"{name} \S+ ok", lines[0])
    assert re.fullmatch(r"bad \S+ FAIL", lines[1])
    assert result.exit_code == 1


def test_a_folder_that_is_no_case_is_refused_with_what_is_missing(tmp_path):
    with pytest.raises(BadCase, match=r"config.json, trace.json, logits.npz missing"):
        read_case(tmp_path)


def test_a_trace_whose_rows_do_not_match_its_logits_is_refused(written, tmp_path):
    source = written / "llama-w5-combined-mixed"
    for file in source.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    trace = json.loads((source / "trace.json").read_text())
    trace["trace"][2]["fed"].pop()
    (tmp_path / "trace.json").write_text(json.dumps(trace))
    with pytest.raises(BadCase, match="forward 2 does not have 5 rows everywhere"):
        read_case(tmp_path)
