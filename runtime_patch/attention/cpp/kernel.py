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

from runtime_patch.attention.kernel import Kernel, check_tensors
from runtime_patch.attention.plan import Plan
from runtime_patch.attention.rope import Rope
from runtime_patch.errors import KernelUnavailable
from runtime_patch.native.build import build

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
    def strides(cls, strides: tuple[int, ...]) -> Tensor:
        return cls(None, strides[0], strides[1])


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


class Prepared:
    """All of a call that does not change from layer to layer: the plan's schedule, which is
    freed with it, memory for partial results, and the call's arguments but the pointers."""

    def __init__(self, library: ctypes.CDLL, plan: Plan, q, k, v, rope: Rope, scale: float):
        heads, (kv_heads, value_dim) = q.shape[1], v.shape[1:]
        arrays = (plan.slots, plan.segment_start, plan.read_start, plan.read_row, plan.read_limit)
        arrays = [array.contiguous() for array in arrays]
        pointers = PlanPointers(plan.num_rows, plan.num_segments, *(a.data_ptr() for a in arrays))
        partials = c_int64()
        schedule = library.hogwild_schedule(byref(pointers), heads // kv_heads, byref(partials))
        weakref.finalize(self, library.hogwild_free, schedule)
        partial_out = torch.empty(partials.value * heads * value_dim)
        partial_weight = torch.empty(partials.value * heads * 2)
        cos, sin, turn = plan.tables(rope)
        self._alive = (arrays, pointers, partial_out, partial_weight, cos, sin, turn)
        self.call = Call(
            plan=ctypes.pointer(pointers),
            schedule=schedule,
            q=Tensor.strides(q.stride()),
            k=Tensor.strides(k.stride()),
            v=Tensor.strides(v.stride()),
            out=Tensor.strides((heads * value_dim, value_dim)),
            q_type=TYPES[q.dtype],
            kv_type=TYPES[k.dtype],
            heads=heads,
            kv_heads=kv_heads,
            dim=q.shape[2],
            value_dim=value_dim,
            cos=cos.data_ptr(),
            sin=sin.data_ptr(),
            turn=turn.data_ptr(),
            rotary=rope.rotary_dim,
            neox=rope.neox,
            scale=scale,
            threads=torch.get_num_threads(),
            partial_out=partial_out.data_ptr(),
            partial_weight=partial_weight.data_ptr(),
        )


class Cpp:
    """Flash attention over the plan, work split by keys over torch's number of threads.

    bfloat16 queries on a bfloat16 cache are multiplied in bfloat16 where the CPU can: a
    rotated query is then rounded once more, as the model rounded it after its own rotation,
    and so are softmax weights. Everything else is computed in float32.
    """

    name = "cpp"

    def __init__(self, instruction_set: str):
        self.instruction_set = instruction_set
        flags = INSTRUCTION_SETS[instruction_set]
        # torch has its OpenMP runtime loaded; the library finds it under the same name.
        self._library = ctypes.CDLL(str(build(SOURCE, f"attention-{instruction_set}", flags)))
        prototypes = {
            "hogwild_schedule": (c_void_p, POINTER(PlanPointers), c_int64, POINTER(c_int64)),
            "hogwild_free": (None, c_void_p),
            "hogwild_attend": (None, POINTER(Call)),
        }
        for name, (result, *arguments) in prototypes.items():
            function = getattr(self._library, name)
            function.restype, function.argtypes = result, arguments

    def __call__(
        self,
        plan: Plan,
        q: torch.Tensor,
        k: torch.Tensor,
        v: torch.Tensor,
        rope: Rope,
        scale: float,
    ) -> torch.Tensor:
        prepared = self.prepared(plan, q, k, v, rope, scale)
        out = q.new_empty(q.shape[0], q.shape[1], v.shape[2])
        call = prepared.call
        call.q.data, call.out.data = q.data_ptr(), out.data_ptr()
        call.k.data, call.v.data = k.data_ptr(), v.data_ptr()
        self._library.hogwild_attend(byref(call))
        return out

    def prepared(self, plan: Plan, q, k, v, rope: Rope, scale: float) -> Prepared:
        """The call for tensors of these shapes, strides and types, kept with the plan."""
        signature = (rope.key, scale)
        for tensor in (q, k, v):
            signature += (tensor.shape, tensor.stride(), tensor.dtype)
        return plan.cached(signature, lambda: self._prepare(plan, q, k, v, rope, scale))

    def _prepare(self, plan: Plan, q, k, v, rope: Rope, scale: float) -> Prepared:
        check_tensors(plan, q, k, v, rope)
        if q.dtype not in TYPES or k.dtype not in TYPES:
            names = ", ".join(str(dtype) for dtype in TYPES)
            raise ValueError(f"the cpp kernel takes {names}, got {q.dtype} and {k.dtype}")
        if max(q.shape[2], v.shape[2]) > MAX_DIM:
            raise ValueError(f"the cpp kernel takes heads of up to {MAX_DIM}, got {q.shape[2]}")
        return Prepared(self._library, plan, q, k, v, rope, scale)


def instruction_set() -> str:
    """The best that this CPU can run, or the one that HOGWILD_CPU names."""
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
    return wanted


def create(device: torch.device) -> Kernel:
    """For the best instruction set of this CPU, or the one that HOGWILD_CPU names."""
    if device.type != "cpu":
        raise KernelUnavailable(f"the cpp kernel runs on cpu, not on {device.type}")
    return Cpp(instruction_set())
