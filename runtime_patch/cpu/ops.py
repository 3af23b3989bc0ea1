"""Operators on CPU tensors in C++, each the same function as a few of PyTorch.

They compute in float32 and round once, at the end, where PyTorch rounds after each
operation. Each has a ``takes_...`` that says whether it covers given tensors; calling it
with others is an error of the caller, and what is not checked reads out of bounds.
"""

from __future__ import annotations

from ctypes import byref

import torch

from runtime_patch.attention.cpp.kernel import TYPES
from runtime_patch.cpu.library import load
from runtime_patch.cpu.structures import Decoder, Step

# Rows of a linear layer up to which reading the weight takes longer than multiplying. Above,
# PyTorch's matrix product is faster.
MAX_ROWS = 16


def _is_plain(*tensors: torch.Tensor) -> bool:
    """Ordinary CPU memory with the last dimension contiguous."""
    return all(
        t.device.type == "cpu" and t.layout is torch.strided and t.stride(-1) == 1 for t in tensors
    )


class Ops:
    """The operators for one of ``attention.cpp.INSTRUCTION_SETS``. Raises KernelUnavailable."""

    def __init__(self, instruction_set: str):
        self.instruction_set = instruction_set
        library = load(instruction_set)
        self._linear = library.hogwild_linear
        self._rms_norm = library.hogwild_rms_norm
        self._silu_and_mul = library.hogwild_silu_and_mul
        self._rotate = library.hogwild_rotate
        self._decode = library.hogwild_decode

    @staticmethod
    def takes_linear(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None) -> bool:
        return (
            x.dim() == 2
            and 0 < x.shape[0] <= MAX_ROWS
            and x.dtype in TYPES
            and x.dtype == weight.dtype
            and _is_plain(x)
            and weight.is_contiguous()
            and (bias is None or (bias.dtype == x.dtype and bias.is_contiguous()))
        )

    def linear(
        self, x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None
    ) -> torch.Tensor:
        """``x @ weight.T + bias`` for up to MAX_ROWS rows: ``[rows, depth]``,
        ``[outputs, depth]``, ``[outputs]`` -> ``[rows, outputs]``.

        A row of the result does not depend on how many others there are."""
        rows, (outputs, depth) = x.shape[0], weight.shape
        out = x.new_empty(rows, outputs)
        self._linear(
            TYPES[x.dtype],
            torch.get_num_threads(),
            x.data_ptr(),
            x.stride(0),
            rows,
            weight.data_ptr(),
            None if bias is None else bias.data_ptr(),
            outputs,
            depth,
            out.data_ptr(),
        )
        return out

    @staticmethod
    def takes_rms_norm(
        x: torch.Tensor, weight: torch.Tensor, residual: torch.Tensor | None
    ) -> bool:
        return (
            x.dtype in TYPES
            and x.numel() > 0
            and weight.dtype in TYPES
            and weight.shape == x.shape[-1:]
            and weight.is_contiguous()
            and _is_plain(x)
            and (x.dim() == 2 or x.is_contiguous())
            and (
                residual is None
                or (
                    residual.dtype == x.dtype
                    and residual.shape == x.shape
                    and residual.is_contiguous()
                )
            )
        )

    def rms_norm(
        self,
        x: torch.Tensor,
        weight: torch.Tensor,
        epsilon: float,
        residual: torch.Tensor | None = None,
    ) -> torch.Tensor | tuple[torch.Tensor, torch.Tensor]:
        """``x / rms(x) * weight`` over the last dimension; x is ``[..., size]``.

        With a residual: the norm of ``x + residual`` before rounding, and the rounded sum.
        """
        size = x.shape[-1]
        out = x.new_empty(x.shape)
        total = None if residual is None else torch.empty_like(residual)
        self._rms_norm(
            TYPES[x.dtype],
            torch.get_num_threads(),
            x.data_ptr(),
            x.stride(0) if x.dim() == 2 else size,
            None if residual is None else residual.data_ptr(),
            x.numel() // size,
            size,
            TYPES[weight.dtype],
            weight.data_ptr(),
            epsilon,
            out.data_ptr(),
            None if total is None else total.data_ptr(),
        )
        return out if total is None else (out, total)

    @staticmethod
    def takes_silu_and_mul(x: torch.Tensor) -> bool:
        return x.dtype in TYPES and x.numel() > 0 and _is_plain(x) and x.is_contiguous()

    def silu_and_mul(self, x: torch.Tensor) -> torch.Tensor:
        """``silu(gate) * up`` of ``[..., 2 * size]``, the gate in front -> ``[..., size]``."""
        size = x.shape[-1] // 2
        out = x.new_empty(*x.shape[:-1], size)
        self._silu_and_mul(
            TYPES[x.dtype],
            torch.get_num_threads(),
            x.data_ptr(),
            out.numel() // size,
            size,
            out.data_ptr(),
        )
        return out

    @staticmethod
    def takes_rotate(
        positions: torch.Tensor, q: torch.Tensor, k: torch.Tensor, table: torch.Tensor, dim: int
    ) -> bool:
        def is_rows(x: torch.Tensor) -> bool:
            heads_touch = x.dim() == 2 or (x.dim() == 3 and x.stride(1) == x.shape[2] == dim)
            return heads_touch and x.shape[0] == len(positions) and x[0].numel() % dim == 0

        return (
            positions.dim() == 1
            and len(positions) > 0
            and positions.dtype == torch.int64
            and q.dtype in TYPES
            and k.dtype == q.dtype
            and table.dtype == torch.float32
            and table.shape[1] <= dim
            and table.is_contiguous()
            and _is_plain(positions, q, k)
            and is_rows(q)
            and is_rows(k)
        )

    def rotate(
        self,
        positions: torch.Tensor,
        q: torch.Tensor,
        k: torch.Tensor,
        table: torch.Tensor,
        dim: int,
        neox: bool,
    ) -> None:
        """Rotate heads of ``dim`` in place, in the dimensions that the table has.

        positions: int64 ``[rows]``. q and k: ``[rows, heads * dim]`` or ``[rows, heads, dim]``.
        table: float32 ``[positions, rotary]``, cosines in front of sines.
        neox: pairs are of halves, else of neighbours.
        Raises IndexError where a position is not in the table.
        """
        found = self._rotate(
            TYPES[q.dtype],
            torch.get_num_threads(),
            positions.data_ptr(),
            len(positions),
            table.data_ptr(),
            table.shape[0],
            table.shape[1] // 2,
            neox,
            dim,
            q.data_ptr(),
            q.stride(0),
            q[0].numel() // dim,
            k.data_ptr(),
            k.stride(0),
            k[0].numel() // dim,
        )
        if not found:
            raise IndexError(f"a position is outside the rotary table of {table.shape[0]} rows")

    def decode(self, model: Decoder, step: Step) -> None:
        """All layers of a model for one forward; see ``csrc/decoder.h``.

        Raises IndexError where a position is not in the table."""
        if not self._decode(byref(model), byref(step)):
            raise IndexError(f"a position is outside the rotary table of {model.table_rows} rows")
