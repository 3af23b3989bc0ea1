"""The C++ library of the CPU operators: built for an instruction set, loaded, declared."""

from __future__ import annotations

import ctypes
from ctypes import POINTER, c_double, c_int64, c_void_p
from pathlib import Path

from runtime_patch.attention.cpp import kernel as cpp
from runtime_patch.cpu.structures import Decoder, Step
from runtime_patch.native.build import build

SOURCE = Path(__file__).parent / "csrc" / "ops.cpp"

# The functions of csrc/ops.cpp; each begins with the element type and the number of threads.
FUNCTIONS = {
    "linear": (c_void_p, c_int64, c_int64, c_void_p, c_void_p, c_int64, c_int64, c_void_p),
    "rms_norm": (
        *(c_void_p, c_int64, c_void_p, c_int64, c_int64),
        *(c_int64, c_void_p, c_double, c_void_p, c_void_p),
    ),
    "silu_and_mul": (c_void_p, c_int64, c_int64, c_void_p),
    "rotate": (
        *(c_void_p, c_int64, c_void_p, c_int64, c_int64, c_int64, c_int64),
        *(c_void_p, c_int64, c_int64, c_void_p, c_int64, c_int64),
    ),
}

RESULTS = {"rotate": c_int64}


def load(instruction_set: str) -> ctypes.CDLL:
    """The library for one of ``cpp.INSTRUCTION_SETS``. Raises KernelUnavailable."""
    flags = cpp.INSTRUCTION_SETS[instruction_set]
    library = ctypes.CDLL(str(build(SOURCE, f"cpu-{instruction_set}", flags, [cpp.SOURCE.parent])))
    for name, arguments in FUNCTIONS.items():
        function = getattr(library, f"hogwild_{name}")
        function.argtypes = (c_int64, c_int64, *arguments)
        function.restype = RESULTS.get(name)
    library.hogwild_decode.argtypes = (POINTER(Decoder), POINTER(Step))
    library.hogwild_decode.restype = c_int64
    return library
