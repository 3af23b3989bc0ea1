"""Run by ``test_flashinfer_builds.py``, with a CUDA toolkit and without a GPU."""

import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
import torch
import triton

from runtime_patch.attention.flashinfer.jit import glue_spec, variant_spec
from runtime_patch.attention.flashinfer.kernel import FlashInfer
from runtime_patch.attention.flashinfer.requests import make_requests
from runtime_patch.attention.reference import Reference
from runtime_patch.attention.rope import rotate
from tests.gpu.cases import Shape, random_plan, team_plan

SCALE = 0.2
HALF = Shape(heads=6, kv_heads=2, dim=64, value_dim=64, rotary_dim=64, dtype=torch.bfloat16)


@pytest.fixture(scope="module")
def glue():
    return glue_spec().build_and_load()


class Emulated:
    """FlashInfer's paged prefill with csrc_gpu/variant.cuh, by what its source does: one
    request after another, a base-2 log-sum-exp, and 0 and -inf for rows that see no key."""

    def plan(self, row_start, key_start, slots, last_page, **options):
        assert options["page_size"] == 1 and options["disable_split_kv"]
        assert row_start.dtype == key_start.dtype == slots.dtype == torch.int32
        assert last_page.tolist() == [1] * (len(row_start) - 1)
        self.lists = (row_start.tolist(), key_start.tolist(), slots.long())

    def run(self, q, cache, limit, scale, out, return_lse, enable_pdl):
        rows, keys, slots = self.lists
        lse = torch.full(q.shape[:2], -torch.inf)
        group = q.shape[1] // cache[0].shape[2]
        for i in range(len(rows) - 1):
            some, at = slice(rows[i], rows[i + 1]), slots[keys[i] : keys[i + 1]]
            k, v = (t[at, 0].float().repeat_interleave(group, 1) for t in cache)
            logits = torch.einsum("qhd,khd->qhk", q[some].float(), k) * scale
            hidden = torch.arange(len(at)) >= limit[some, None]
            logits.masked_fill_(hidden[:, None], -torch.inf)
            lse[some] = logits.logsumexp(-1) * 1.4426950408889634
            weight = logits.softmax(-1).nan_to_num(0)
            out[some] = torch.einsum("qhk,khd->qhd", weight, v).to(q.dtype)
        return out, lse


def differ(plan, shape: Shape, glue) -> float:
    kernel = FlashInfer(torch.device("cpu"), 16, glue, lambda *_: Emulated())
    q, k, v = shape.tensors(plan.num_rows, 1000)
    rope = shape.rope()
    out = kernel(plan, q, k, v, rope, SCALE)
    exact = Reference()(plan, q.double(), k.double(), v.double(), rope, SCALE)
    return float((out.double() - exact).abs().max())


@pytest.mark.parametrize("neox", [True, False])
@pytest.mark.parametrize("rotary_dim", [64, 24])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_the_rotation_header_equals_the_rope_module_at_any_position(glue, dtype, rotary_dim, neox):
    shape = replace(HALF, rotary_dim=rotary_dim, neox=neox, dtype=dtype)
    q, _, _ = shape.tensors(4, 1)
    deltas = torch.tensor([0, 1, -131072, 131071, 7])
    row = torch.tensor([3, 0, 1, 1, 2, 0], dtype=torch.int32)
    table = torch.tensor([0, 3, 2, 1, 4, 4], dtype=torch.int32)
    cos, sin = shape.rope().table(deltas)
    rotated = torch.empty(6, shape.heads, shape.dim, dtype=dtype)
    glue.rotate_rows(q, row, table, cos, sin, rotated, neox)
    at = table.long()
    expected = rotate(q[row.long()].float(), cos[at], sin[at], neox)
    torch.testing.assert_close(rotated, expected.to(dtype))
    assert torch.equal(rotated[0], q[3])


def test_the_merge_header_weighs_by_the_base_2_log_sum_exp(glue):
    partial = torch.randn(5, 2, 8)
    lse = torch.tensor([[0.0, 1.0], [2.0, -torch.inf], [-3.0, 0.5], [40.0, -50.0], [1.0, 1.0]])
    order = torch.tensor([4, 0, 1, 2, 3], dtype=torch.int32)
    start = torch.tensor([0, 1, 3, 5], dtype=torch.int32)
    out = torch.empty(3, 2, 8)
    glue.merge_rows(partial, lse, order, start, out)
    weight = (lse * torch.log(torch.tensor(2.0))).exp()[..., None]
    expected = [partial[4]]
    for a, b in ((0, 1), (2, 3)):
        total = weight[a] + weight[b]
        expected.append((partial[a] * weight[a] + partial[b] * weight[b]) / total)
    torch.testing.assert_close(out, torch.stack(expected))


def test_the_angles_are_those_of_float64():
    plan, rope = random_plan(2), HALF.rope()
    requests = make_requests(plan, rope, 2, 16, torch.device("cpu"))
    deltas = plan.read_delta.unique()
    assert deltas.abs().max() > 100_000
    for found, exact in zip((requests.cos, requests.sin), rope.table(deltas), strict=True):
        assert torch.equal(found, exact)


@pytest.mark.parametrize("seed", range(4))
def test_the_whole_kernel_equals_the_reference_with_an_emulated_attention(glue, seed):
    assert differ(random_plan(seed, longest=300), HALF, glue) < 0.04
    assert differ(random_plan(seed), replace(HALF, dtype=torch.float16), glue) < 0.006


def test_flashinfer_plans_once_per_plan_for_all_layers(glue):
    planned = []

    class Counted(Emulated):
        def plan(self, *lists, **options):
            planned.append(options["num_qo_heads"])
            super().plan(*lists, **options)

    kernel = FlashInfer(torch.device("cpu"), 16, glue, lambda *_: Counted())
    for plan in (random_plan(1), random_plan(2)):
        q, k, v = HALF.tensors(plan.num_rows, 1000)
        rope = HALF.rope()
        first, second = (kernel(plan, q, k, v, rope, SCALE) for _ in range(2))
        assert torch.equal(first, second)
    assert planned == [HALF.heads, HALF.heads]


@pytest.mark.parametrize("opening", [1, 30])
def test_a_team_beside_ordinary_requests_equals_the_reference(glue, opening):
    shape = replace(HALF, dtype=torch.float16)
    assert differ(team_plan(opening, opening=opening), shape, glue) < 0.006


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"dtype": torch.float32}, "takes bfloat16 or float16"),
        ({"dim": 32, "value_dim": 32, "rotary_dim": 32}, "equal head dimensions"),
        ({"value_dim": 128}, "equal head dimensions"),
    ],
    ids=str,
)
def test_what_flashinfer_cannot_do_is_refused_with_the_remedy(glue, change, message):
    with pytest.raises(ValueError, match=f"{message}.*choose the triton kernel"):
        differ(random_plan(1), replace(HALF, **change), glue)


@pytest.mark.parametrize("build", [glue_spec, lambda: variant_spec(torch.bfloat16, 128)])
def test_the_modules_hold_code_for_sm_80_and_sm_90a(build):
    spec = build()
    spec.build_and_load()
    cuobjdump = Path(triton.__file__).parent / "backends/nvidia/bin/cuobjdump"
    listed = subprocess.run(
        [cuobjdump, "--list-elf", spec.get_library_path()],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert "sm_80.cubin" in listed and "sm_90a.cubin" in listed
