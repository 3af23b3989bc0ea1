"""The plan on the CPU in C++: each key and value is loaded once for all rows and heads.

``csrc/`` says how. This module picks the instruction set, builds the library for it and
hands over pointers.
"""

from __future__ import annotations

import ctypes
import os
import weakref
from ctypes import POINTER, Structure, byref, c_double, c_int64, c_void_p
from pathlib import Path

import torch

from runtime_patch.attention.build import build
from runtime_patch.attention.kernel import Kernel, KernelUnavailable, check_tensors
from runtime_patch.attention.plan import Plan
from runtime_patch.attention.rope import Rope

SOURCE = Path(__file__).parent / "csrc" / "attention.cpp"
ENVIRONMENT = "HOGWILD_CPU"
MAX_DIM = 1024  # kMaxDim in csrc/pack.h

_AVX2 = ("-mavx2", "-mfma", "-mf16c")
_AVX512 = (*_AVX2, "-mavx512f", "-mavx512bw", "-mavx512dq", "-mavx512vl")

# Compiler flags of each instruction set, best first.
INSTRUCTION_SETS: dict[str, tuple[str, ...]] = {
    "avx512_bf16": (*_AVX512, "-mavx512bf16"),
    "avx512": _AVX512,
    "avx2": _AVX2,
    "plain": (),
}

TYPES = {torch.float32: 0, torch.bfloat16: 1, torch.float16: 2}


class PlanPointers(Structure):
    """``Plan`` in csrc/schedule.h."""

    _fields_ = [("num_rows", c_int64), ("num_segments", c_int64)] + [
        (name, c_void_p)
        for name in ("slots", "segment_start", "read_start", "read_row", "read_limit")
    ]


class Tensor(Structure):
    """``Tensor`` in csrc/call.h."""

    _fields_ = [("data", c_void_p), ("row_stride", c_int64), ("head_stride", c_int64)]

    @classmethod
    def of(cls, tensor: torch.Tensor) -> Tensor:
        return cls(tensor.data_ptr(), tensor.stride(0), tensor.stride(1))


class Call(Structure):
    """``Call`` in csrc/call.h."""

    _fields_ = [
        ("plan", POINTER(PlanPointers)),
        ("schedule", c_void_p),
        *((name, Tensor) for name in ("q", "k", "v", "out")),
        *((name, c_int64) for name in ("q_type", "kv_type")),
        *((name, c_int64) for name in ("heads", "kv_heads", "dim", "value_dim")),
        *((name, c_void_p) for name in ("cos", "sin", "turn")),
        *((name, c_int64) for name in ("rotary", "neox")),
        ("scale", c_double),
        ("threads", c_int64),
        ("partial_out", c_void_p),
        ("partial_weight", c_void_p),
    ]


def supported_instruction_sets() -> list[str]:
    """What this CPU can run, best first. ATEN_CPU_CAPABILITY lowers it as it does for torch."""
    level = torch.backends.cpu.get_cpu_capability()
    if level == "AVX512":
        has_bf16 = torch.cpu.get_capabilities().get("avx512_bf16", False)
        return list(INSTRUCTION_SETS)[0 if has_bf16 else 1 :]
    return ["avx2", "plain"] if level == "AVX2" else ["plain"]


class Schedule:
    """The C++ schedule of a plan, freed with it, and the memory for partial results."""

    def __init__(self, library: ctypes.CDLL, plan: Plan, heads: int, group: int, value_dim: int):
        arrays = (plan.slots, plan.segment_start, plan.read_start, plan.read_row, plan.read_limit)
        self._arrays = [array.contiguous() for array in arrays]
        pointers = [array.data_ptr() for array in self._arrays]
        self.plan = PlanPointers(plan.num_rows, plan.num_segments, *pointers)
        partials = c_int64()
        self.handle = library.hogwild_schedule(byref(self.plan), group, byref(partials))
        weakref.finalize(self, library.hogwild_free, self.handle)
        self.partial_out = torch.empty(partials.value * heads * value_dim)
        self.partial_weight = torch.empty(partials.value * heads * 2)


class Cpp:
    """Flash attention over the plan, work split by keys over torch's number of threads."""

    name = "cpp"

    def __init__(self, instruction_set: str):
        self.instruction_set = instruction_set
        flags = INSTRUCTION_SETS[instruction_set]
        # torch has its OpenMP runtime loaded; the library finds it under the same name.
        self._library = ctypes.CDLL(str(build(SOURCE, f"attention-{instruction_set}", flags)))
        self._library.hogwild_schedule.restype = c_void_p
        self._library.hogwild_schedule.argtypes = [
            POINTER(PlanPointers),
            c_int64,
            POINTER(c_int64),
        ]
        self._library.hogwild_free.argtypes = [c_void_p]
        self._library.hogwild_free.restype = None
        self._library.hogwild_attend.argtypes = [POINTER(Call)]
        self._library.hogwild_attend.restype = None

    def __call__(
        self,
        plan: Plan,
        q: torch.Tensor,
        k: torch.Tensor,
        v: torch.Tensor,
        rope: Rope,
        scale: float,
    ) -> torch.Tensor:
        check_tensors(plan, q, k, v, rope)
        _, heads, dim = q.shape
        kv_heads, value_dim = v.shape[1:]
        if q.dtype not in TYPES or k.dtype not in TYPES:
            names = ", ".join(str(dtype) for dtype in TYPES)
            raise ValueError(f"the cpp kernel takes {names}, got {q.dtype} and {k.dtype}")
        if max(dim, value_dim) > MAX_DIM:
            raise ValueError(f"the cpp kernel takes heads of up to {MAX_DIM}, got {dim}")
        cos, sin, turn = plan.tables(rope)
        schedule = plan.cached(
            ("cpp", heads, kv_heads, value_dim),
            lambda: Schedule(self._library, plan, heads, heads // kv_heads, value_dim),
        )
        out = q.new_empty(q.shape[0], heads, value_dim)
        call = Call(
            ctypes.pointer(schedule.plan),
            schedule.handle,
            Tensor.of(q),
            Tensor.of(k),
            Tensor.of(v),
            Tensor.of(out),
            TYPES[q.dtype],
            TYPES[k.dtype],
            heads,
            kv_heads,
            dim,
            value_dim,
            cos.data_ptr(),
            sin.data_ptr(),
            turn.data_ptr(),
            rope.rotary_dim,
            rope.neox,
            scale,
            torch.get_num_threads(),
            schedule.partial_out.data_ptr(),
            schedule.partial_weight.data_ptr(),
        )
        self._library.hogwild_attend(byref(call))
        return out


def create(device: torch.device) -> Kernel:
    """For the best instruction set of this CPU, or the one that HOGWILD_CPU names."""
    if device.type != "cpu":
        raise KernelUnavailable(f"the cpp kernel runs on cpu, not on {device.type}")
    supported = supported_instruction_sets()
    wanted = os.environ.get(ENVIRONMENT) or supported[0]
    if wanted not in INSTRUCTION_SETS:
        raise ValueError(
            f"{ENVIRONMENT} {wanted!r} is unknown; one of {', '.join(INSTRUCTION_SETS)}"
        )
    if wanted not in supported:
        raise KernelUnavailable(
            f"this CPU has no {wanted}; set {ENVIRONMENT} to one of {', '.join(supported)}"
        )
    return Cpp(wanted)
