"""Cutting a plan into equal pieces of work for a GPU. Host side, numpy, no device calls.

A thread block of the attention kernels takes an *item*: up to ``reads_per_tile`` query
rows and about the same number of keys as every other item. Tiles of a plan that are
read by exactly the same rows, such as the prompt and all published steps of a team,
are laid end to end and cut anew, so that neither one long prompt nor two hundred short
steps unbalance the grid, and a row leaves one partial result per item, not per segment.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from runtime_patch.attention.plan import Plan

# Thread blocks per multiprocessor that a grid aims at, and keys below which a cut costs
# more in partial results than it gains in balance.
WAVES = 2
MIN_KEYS = 128


@dataclass(frozen=True)
class Tiles:
    """Groups of reads of one segment that are computed together, N of them.

    segment: int64 ``[N]``. first_read, reads: int64 ``[N]``, the reads of each tile.
    keys: int64 ``[N]``, how many of the segment's first keys the tile needs, at least 1.
    """

    segment: np.ndarray
    first_read: np.ndarray
    reads: np.ndarray
    keys: np.ndarray


@dataclass(frozen=True)
class Work:
    """I items made of P pieces; an item's partial results are one per row, X in all.

    item_piece: int64 ``[I + 1]``; item i has the pieces ``[item_piece[i], item_piece[i + 1])``.
    item_partial: int64 ``[I + 1]``; item i's rows are ``partial_row[item_partial[i]:...]``.
    piece_slot: int64 ``[P]``, index into the plan's slots of the piece's first key.
    piece_key: int64 ``[P]``, that key's index in its segment.
    piece_keys: int64 ``[P]``, keys of the piece.
    piece_read: int64 ``[P]``, the read of the item's first row; the next rows' reads follow.
    partial_row: int64 ``[X]``, the query row of each partial result.
    """

    item_piece: np.ndarray
    item_partial: np.ndarray
    piece_slot: np.ndarray
    piece_key: np.ndarray
    piece_keys: np.ndarray
    piece_read: np.ndarray
    partial_row: np.ndarray

    def __post_init__(self) -> None:
        if self.item_piece[-1] != len(self.piece_slot):
            raise ValueError("the items do not cover the pieces")
        if self.item_partial[-1] != len(self.partial_row):
            raise ValueError("the items do not cover the partial results")

    @property
    def items(self) -> int:
        return len(self.item_piece) - 1


@dataclass(frozen=True)
class Merge:
    """How the partial results of each row come together.

    order: int64 ``[X]``, the partial results, row after row.
    start: int64 ``[T + 1]``; row t's are ``order[start[t]:start[t + 1]]``.
    """

    order: np.ndarray
    start: np.ndarray


def make_tiles(plan: Plan, reads_per_tile: int) -> Tiles:
    """Cut each segment's reads into tiles of at most ``reads_per_tile``."""
    if reads_per_tile < 1:
        raise ValueError(f"a tile holds at least one read, got {reads_per_tile}")
    read_start = plan.host.read_start.numpy()
    per_segment = -(-np.diff(read_start) // reads_per_tile)
    segment = np.repeat(np.arange(plan.num_segments), per_segment)
    first = read_start[segment] + count_up(per_segment) * reads_per_tile
    reads = np.minimum(reads_per_tile, read_start[segment + 1] - first)
    return Tiles(segment, first, reads, np.maximum.reduceat(plan.host.read_limit.numpy(), first))


def divide(plan: Plan, tiles: Tiles, *, processors: int, kv_heads: int, join: bool) -> Work:
    """Cut the tiles by keys into items of equal size, for a grid of items times KV heads.

    processors: multiprocessors to keep busy.
    join: lay tiles with the same rows end to end, so that an item may span segments
        (the kernel then rotates its queries anew for each piece). Otherwise an item is
        one piece, of one segment.
    """
    read_row = plan.host.read_row.numpy()
    run = _equal_rows(tiles, read_row) if join else np.arange(len(tiles.keys))
    order = np.argsort(run, kind="stable")
    keys = tiles.keys[order]
    start = np.cumsum(keys) - keys
    leads = np.flatnonzero(np.diff(run[order], prepend=-1))
    run_start = start[leads]
    total = int(keys.sum())
    run_keys = np.diff(run_start, append=total)
    share = max(MIN_KEYS, -(-total * kv_heads // (WAVES * processors)))
    per_run = -(-run_keys // share)
    item_run = np.repeat(np.arange(len(leads)), per_run)
    item_start = run_start[item_run] + run_keys[item_run] * count_up(per_run) // per_run[item_run]

    cuts = np.union1d(start, item_start)
    at = np.searchsorted(start, cuts, side="right") - 1
    inside, tile = cuts - start[at], order[at]
    lead = order[leads][item_run]
    item_reads = tiles.reads[lead]
    rows = np.repeat(tiles.first_read[lead], item_reads) + count_up(item_reads)
    return Work(
        item_piece=np.append(np.searchsorted(cuts, item_start), len(cuts)),
        item_partial=starts(item_reads),
        piece_slot=plan.host.segment_start.numpy()[tiles.segment[tile]] + inside,
        piece_key=inside,
        piece_keys=np.diff(cuts, append=total),
        piece_read=tiles.first_read[tile],
        partial_row=read_row[rows],
    )


def merge_order(work: Work, num_rows: int) -> Merge:
    return Merge(
        np.argsort(work.partial_row, kind="stable"),
        starts(np.bincount(work.partial_row, minlength=num_rows)),
    )


def count_up(lengths: np.ndarray) -> np.ndarray:
    """0, 1, ..., length - 1 for each length in turn."""
    ends = np.cumsum(lengths)
    return np.arange(ends[-1] if len(ends) else 0) - np.repeat(ends - lengths, lengths)


def starts(lengths: np.ndarray) -> np.ndarray:
    """0 and the running sums: where each of consecutive stretches starts and ends."""
    return np.concatenate(([0], np.cumsum(lengths)))


def _equal_rows(tiles: Tiles, read_row: np.ndarray) -> np.ndarray:
    """A number per tile, equal for tiles whose reads belong to the same rows in order."""
    rows = np.full((len(tiles.reads), tiles.reads.max()), -1, dtype=np.int64)
    tile = np.repeat(np.arange(len(tiles.reads)), tiles.reads)
    rows[tile, count_up(tiles.reads)] = read_row
    return np.unique(rows, axis=0, return_inverse=True)[1].reshape(-1)
