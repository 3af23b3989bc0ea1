"""The Triton kernels compile for the architectures they are meant for, without a GPU."""

import re
import subprocess
from pathlib import Path

import pytest
import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from runtime_patch.attention.triton.attend import attend, merge
from runtime_patch.attention.triton.tile import Tile, padded

TOOLS = Path(triton.__file__).parent / "backends/nvidia/bin"
NAMES = {torch.bfloat16: "bf16", torch.float16: "fp16", torch.float32: "fp32"}
SHARED_OF_SM_89 = 99 * 1024


def compiled(kernel, arch: int, dtype: torch.dtype, constants: dict, warps=4, stages=3):
    pointers = dict.fromkeys(("q_ptr", "k_ptr", "v_ptr", "out_ptr"), f"*{NAMES[dtype]}")
    pointers |= dict.fromkeys(("partial_ptr", "lse_ptr", "cos_ptr", "sin_ptr"), "*fp32")
    pointers["slots_ptr"] = "*i64"
    signature = {}
    for name in kernel.arg_names:
        if name in constants:
            signature[name] = "constexpr"
        elif name == "scale_log2":
            signature[name] = "fp32"
        elif name.startswith("stride_"):
            signature[name] = "i32"
        else:
            signature[name] = pointers.get(name, "*i32")
    # as at run time: allocations and whole-row strides are multiples of 16
    aligned = {
        (i,): [["tt.divisibility", 16]]
        for i, name in enumerate(kernel.arg_names)
        if name in pointers or name.startswith("stride_")
    }
    source = ASTSource(kernel, signature, constants, aligned)
    return triton.compile(
        source,
        target=GPUTarget("cuda", arch, 32),
        options={"num_warps": warps, "num_stages": stages},
    )


def attend_constants(tile: Tile, heads: int, kv_heads: int, dim: int, neox: bool = True) -> dict:
    return {
        "GROUP": heads // kv_heads,
        "SHARE": tile.heads,
        "HEADS": heads,
        "HEAD_DIM": dim,
        "VALUE_DIM": dim,
        "ROTARY_DIM": dim,
        "NEOX": neox,
        "BLOCK_M": tile.rows,
        "BLOCK_N": tile.keys,
        "BLOCK_D": padded(dim),
        "BLOCK_V": padded(dim),
    }


def spills_in_the_key_loop(cubin: bytes, path: Path) -> int:
    """Local memory accesses in the innermost loop that multiplies matrices."""
    path.write_bytes(cubin)
    done = subprocess.run([TOOLS / "nvdisasm", "-c", path], capture_output=True, text=True)
    lines = done.stdout.splitlines()
    labels = {line.strip().rstrip(":"): i for i, line in enumerate(lines) if line.startswith(".L_")}
    loops = []
    for i, line in enumerate(lines):
        target = re.search(r"BRA.*?(\.L_x_\d+)", line)
        start = labels.get(target.group(1), i) if target else i
        body = "\n".join(lines[start:i])
        if re.search(r"HMMA|HGMMA|UTC\w*MMA", body):
            loops.append(body)
    return len(re.findall(r"\b(?:LDL|STL)\b", min(loops, key=len)))


@pytest.mark.parametrize("arch", [80, 90, 100])
@pytest.mark.parametrize(
    ("reads", "heads", "kv_heads", "dim", "dtype"),
    [
        (4, 40, 8, 128, torch.bfloat16),  # QwQ-32B, four workers
        (1, 32, 8, 128, torch.float16),  # Qwen3-8B, one worker
        (512, 40, 8, 128, torch.bfloat16),  # a prefill
        (512, 8, 4, 256, torch.bfloat16),
        (4, 9, 3, 64, torch.float32),
    ],
    ids=lambda value: str(value).removeprefix("torch."),
)
def test_attend_compiles_to_tensor_core_code_without_spills_in_the_key_loop(
    arch, reads, heads, kv_heads, dim, dtype, tmp_path
):
    tile = Tile.choose(reads, heads // kv_heads, dim, dtype.itemsize)
    constants = attend_constants(tile, heads, kv_heads, dim)
    binary = compiled(attend, arch, dtype, constants, tile.warps, tile.stages)
    assert binary.metadata.shared <= SHARED_OF_SM_89
    assert re.search(r"mma\.sync|wgmma|tcgen05\.mma", binary.asm["ptx"])
    assert spills_in_the_key_loop(binary.asm["cubin"], tmp_path / "attend.cubin") == 0


@pytest.mark.parametrize(
    ("dim", "dtype"), [(80, torch.bfloat16), (64, torch.float32), (256, torch.float32)], ids=str
)
def test_the_largest_tiles_fit_shared_memory_with_interleaved_pairs(dim, dtype):
    tile = Tile.choose(64, 5, dim, dtype.itemsize)
    constants = attend_constants(tile, 5, 1, dim, neox=False)
    binary = compiled(attend, 80, dtype, constants, tile.warps, tile.stages)
    assert binary.metadata.shared <= SHARED_OF_SM_89, tile


@pytest.mark.parametrize("arch", [80, 90, 100])
def test_merge_compiles(arch):
    constants = {"HEADS": 40, "VALUE_DIM": 128, "BLOCK_P": 16, "BLOCK_V": 128}
    assert compiled(merge, arch, torch.bfloat16, constants).asm["cubin"]
