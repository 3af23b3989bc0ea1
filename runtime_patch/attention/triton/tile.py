"""The shape of a Triton thread block."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Tile:
    """Shape of one thread block: up to ``reads`` query rows times ``heads`` query heads of
    one KV head make ``rows``; ``keys`` per step of the loop."""

    heads: int
    rows: int
    keys: int
    warps: int
    stages: int

    @property
    def reads(self) -> int:
        return self.rows // self.heads

    @staticmethod
    def choose(reads: int, group: int, dim: int, element_size: int) -> Tile:
        """For segments of up to ``reads`` reads, ``group`` query heads per KV head and
        head dimensions up to ``dim``.

        Fixed rules, so that nothing is tuned at run time. They keep the loop over keys
        free of register spills and the block within the 99 KiB of shared memory of sm_86
        and sm_89, as the tests check on the compiled code."""
        row_bytes = padded(dim) * element_size
        most = max(16, min(128 // element_size, 16384 // row_bytes))
        shares = -(-group // most)
        heads = -(-group // shares)
        rows = min(most, padded(reads * heads))
        return Tile(
            heads,
            rows,
            keys=most,
            warps=8 if rows * row_bytes >= 16384 else 4,
            stages=3 if row_bytes <= 256 else 2,
        )


def padded(n: int) -> int:
    """The smallest side of a matrix product that holds n: a power of 2, at least 16."""
    return max(16, 1 << (n - 1).bit_length())
