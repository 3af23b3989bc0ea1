"""The C++ kernel: every instruction set, building and caching, threads, batches."""

from __future__ import annotations

import logging
import random
import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch

from runtime_patch.attention.cpp.kernel import (
    INSTRUCTION_SETS,
    SOURCE,
    Cpp,
    create,
    supported_instruction_sets,
)
from runtime_patch.attention.kernel import choose
from runtime_patch.attention.plan import build_plan
from runtime_patch.attention.views import Segment, View
from runtime_patch.errors import KernelUnavailable
from runtime_patch.native import build as building
from tests.unit.runtime_patch.attention.cases import (
    TOLERANCE,
    Pool,
    make_case,
    make_rope,
    random_views,
    team_views,
)

DTYPES = [torch.float32, torch.float16, torch.bfloat16]
CPU = torch.device("cpu")

each_set = pytest.mark.parametrize("instruction_set", supported_instruction_sets())


@pytest.fixture
def threads():
    before = torch.get_num_threads()
    yield torch.set_num_threads
    torch.set_num_threads(before)


@each_set
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("seed", range(3))
def test_every_instruction_set_of_this_cpu_agrees_with_the_oracle(
    instruction_set, dtype, seed, monkeypatch
):
    monkeypatch.setenv("HOGWILD_CPU", instruction_set)
    kernel = create(CPU)
    assert kernel.instruction_set == instruction_set
    draw = random.Random(seed)
    dim = [40, 64, 80][seed]
    case = make_case(
        random_views(draw),
        slots=4096,
        dtype=dtype,
        heads=14,
        kv_heads=2,
        dim=dim,
        value_dim=[24, 64, 112][seed],
        rope=make_rope(dim, dim // 2 if seed else dim, neox=seed != 1),
    )
    assert case.error(case.run(kernel)) < TOLERANCE[dtype]


@pytest.mark.parametrize("cache", DTYPES, ids=str)
@pytest.mark.parametrize("query", DTYPES, ids=str)
def test_queries_and_cache_may_differ_in_dtype(query, cache):
    draw = random.Random(1)
    case = make_case(random_views(draw), slots=4096, dtype=cache)
    mixed = type(case)(case.views, case.q.to(query), case.k, case.v, case.rope, case.scale)
    out = mixed.run(Cpp(supported_instruction_sets()[0]))
    assert out.dtype == query
    assert mixed.error(out) < TOLERANCE[query]


def test_float64_is_refused_with_what_is_taken():
    case = make_case(random_views(random.Random(1)), slots=4096, dtype=torch.float64)
    with pytest.raises(
        ValueError, match="the cpp kernel takes torch.float32, .* got torch.float64"
    ):
        case.run(choose("cpp", "cpu"))


def test_a_row_is_the_same_bit_for_bit_alone_and_in_a_batch(threads):
    pool = Pool(8192, random.Random(2))
    alone = View(1, 2999, (Segment("alone", pool.take(3000), 0),))
    others = team_views(random.Random(2), pool, "team", longest=900)
    case = make_case([*others, alone], slots=8192, dtype=torch.bfloat16, heads=9, kv_heads=3)
    kernel = choose("cpp", "cpu")
    single = type(case)((alone,), case.q[-1:], case.k, case.v, case.rope, case.scale)
    expected = single.run(kernel)[0]
    for count in (1, 2, 5):
        threads(count)
        assert torch.equal(case.run(kernel)[-1], expected)


def test_more_threads_than_work_give_the_same(threads):
    case = make_case(random_views(random.Random(3)), slots=4096)
    kernel = choose("cpp", "cpu")
    threads(1)
    expected = case.run(kernel)
    threads(13)
    assert torch.equal(case.run(kernel), expected)


def test_one_plan_serves_layers_of_different_shapes():
    views = tuple(random_views(random.Random(4)))
    plan, kernel = build_plan(views), choose("cpp", "cpu")
    for heads, kv_heads, dim in [(4, 2, 64), (6, 6, 64), (4, 2, 64), (4, 1, 128)]:
        case = make_case(views, slots=4096, heads=heads, kv_heads=kv_heads, dim=dim, seed=heads)
        out = kernel(plan, case.q, case.k, case.v, case.rope, case.scale)
        assert case.error(out) < TOLERANCE[torch.float32]


def test_an_instruction_set_that_the_cpu_lacks_is_a_clear_error(monkeypatch):
    monkeypatch.setattr(
        "runtime_patch.attention.cpp.kernel.supported_instruction_sets", lambda: ["avx2", "plain"]
    )
    monkeypatch.setenv("HOGWILD_CPU", "avx512")
    with pytest.raises(KernelUnavailable, match="no avx512; set HOGWILD_CPU to one of avx2, plain"):
        create(CPU)


def test_an_unknown_instruction_set_is_a_clear_error(monkeypatch):
    monkeypatch.setenv("HOGWILD_CPU", "mmx")
    with pytest.raises(ValueError, match="HOGWILD_CPU 'mmx' is unknown; one of avx512_bf16"):
        create(CPU)


@pytest.mark.parametrize(
    ("level", "bf16", "expected"),
    [
        ("AVX512", True, list(INSTRUCTION_SETS)),
        ("AVX512", False, ["avx512", "avx2", "plain"]),
        ("AVX2", False, ["avx2", "plain"]),
        ("DEFAULT", False, ["plain"]),
    ],
)
def test_the_instruction_set_follows_the_cpu(level, bf16, expected, monkeypatch):
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: level)
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {"avx512_bf16": bf16})
    assert supported_instruction_sets() == expected


# Building. A stand-in for the compiler counts how often it compiles.

COMPILER = """#!/bin/sh
case "$*" in *--version*) echo "stand-in ${STAND_IN_VERSION:-1}"; exit 0;; esac
echo x >> {log}
sleep 0.2
for last; do :; done
echo built > "$last"
"""


@pytest.fixture
def compiler(tmp_path, monkeypatch) -> Path:
    """Returns the log, with a line per compilation."""
    log, command = tmp_path / "log", tmp_path / "compiler"
    command.write_text(COMPILER.replace("{log}", str(log)))
    command.chmod(command.stat().st_mode | stat.S_IXUSR)
    log.touch()
    monkeypatch.setenv("CXX", str(command))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return log


def compilations(log: Path) -> int:
    return len(log.read_text().split())


def test_a_library_is_built_once_and_then_found(compiler, tmp_path):
    first = building.build(SOURCE, "attention", ["-mone"])
    assert first.read_text() == "built\n"
    assert first.is_relative_to(tmp_path / "cache")
    assert building.build(SOURCE, "attention", ["-mone"]) == first
    assert compilations(compiler) == 1


def test_other_flags_another_compiler_version_and_other_sources_are_built_anew(
    compiler, tmp_path, monkeypatch
):
    folder = tmp_path / "source"
    folder.mkdir()
    source, header = folder / "a.cpp", folder / "a.h"
    source.write_text("one")
    header.write_text("one")
    built = {building.build(source, "attention", ["-mone"])}
    built.add(building.build(source, "attention", ["-mtwo"]))
    monkeypatch.setenv("STAND_IN_VERSION", "2")
    built.add(building.build(source, "attention", ["-mone"]))
    header.write_text("two")
    built.add(building.build(source, "attention", ["-mone"]))
    assert len(built) == compilations(compiler) == 4


def test_builders_that_start_together_build_once(compiler):
    with ThreadPoolExecutor(4) as pool:
        paths = list(pool.map(lambda _: building.build(SOURCE, "attention", []), range(4)))
    assert len(set(paths)) == 1
    assert compilations(compiler) == 1


def test_a_build_says_that_it_builds_and_how_long_it_took(compiler, caplog):
    with caplog.at_level(logging.INFO):
        building.build(SOURCE, "attention", [])
    started, done = (record.message for record in caplog.records if "buil" in record.message)
    assert "once for this machine" in started
    assert done.startswith("built attention-")


def test_a_compiler_that_fails_is_quoted_and_leaves_nothing_behind(compiler, tmp_path):
    command = compiler.with_name("compiler")
    command.write_text(
        '#!/bin/sh\ncase "$*" in *--version*) exit 0;; esac\necho "no OpenMP" >&2\nexit 1\n'
    )
    with pytest.raises(KernelUnavailable, match="the C\\+\\+ compiler failed: (?s:.*)no OpenMP"):
        building.build(SOURCE, "attention", [])
    left = [path for path in (tmp_path / "cache").rglob("*") if path.suffix in (".so", ".tmp")]
    assert left == []


def test_a_compiler_that_does_not_exist_is_a_clear_error(compiler, monkeypatch):
    monkeypatch.setenv("CXX", "/nowhere/c++")
    with pytest.raises(KernelUnavailable, match="/nowhere/c\\+\\+ does not run .* install one"):
        building.build(SOURCE, "attention", [])


def test_a_cache_that_cannot_be_written_names_the_remedy(compiler, tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    with pytest.raises(KernelUnavailable, match="set XDG_CACHE_HOME"):
        building.build(SOURCE, "attention", [])
