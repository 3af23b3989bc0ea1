"""Fixtures for all tests: tiny models, and real servers that run one."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from hogwild_sgl.launch.server_process import ServerProcess
from tests.oracle.tiny_models import make_model

# Exact arithmetic, one thread, a small pool, and SGLang's strictest memory checks.
ARGS = ("--dtype", "float32", "--max-total-tokens", "6000", "--random-seed", "1")
ENVIRONMENT = {
    "OMP_NUM_THREADS": "1",
    "SGLANG_ENABLE_STRICT_MEM_CHECK_DURING_BUSY": "1",
    "SGLANG_ENABLE_STRICT_MEM_CHECK_DURING_IDLE": "1",
}


@dataclass(frozen=True)
class RunningServer:
    """url, model: where it is and the model's folder. record: what its forwards processed."""

    url: str
    model: Path
    record: Path
    process: ServerProcess


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory) -> Callable[[str], Path]:
    """The folder of a tiny random model of a family (see tests/oracle/tiny_models.py)."""
    made: dict[str, Path] = {}

    def make(family: str) -> Path:
        if family not in made:
            made[family] = make_model(tmp_path_factory.mktemp(family) / "model", family)
        return made[family]

    return make


@pytest.fixture(scope="session")
def start_server(tiny_model, tmp_path_factory):
    """A context manager: ``with start_server("llama", "--enable-mixed-chunk") as server``."""

    @contextmanager
    def start(family: str, *args: str, **environment: str) -> Iterator[RunningServer]:
        folder = tmp_path_factory.mktemp("server")
        record, log = folder / "record.jsonl", folder / "server.log"
        env = ENVIRONMENT | {"HOGWILD_RECORD": str(record)} | environment
        model = tiny_model(family)
        with ServerProcess(model, args=[*ARGS, *args], env=env, log_path=log) as process:
            yield RunningServer(process.url, model, record, process)
        assert_no_leak(log)

    return start


def assert_no_leak(log: Path) -> None:
    """SGLang's checks of its memory, while busy and when idle, have found nothing."""
    found = re.search("mem(ory)? leak", log.read_text(), re.IGNORECASE)
    assert not found, f"SGLang reports a leak, see {log}"


@pytest.fixture(scope="session")
def server(start_server) -> Iterator[RunningServer]:
    """One server with a tiny Llama model, shared by all tests that do not hurt it."""
    with start_server("llama") as running:
        yield running
