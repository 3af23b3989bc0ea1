"""Triton: one item's rows against its pieces of keys, and the merge of partial results.

Source: section 3 of the paper (a rotated query per block of keys) on FlashDecoding's
split by keys. See ``triton_kernel.py`` for the host side.
"""

import triton
import triton.language as tl


@triton.jit
def rotated_queries(
    q_ptr,
    cos_ptr,
    sin_ptr,
    row,
    table,
    head,
    active,
    stride_row,
    stride_head,
    HEAD_DIM: tl.constexpr,
    ROTARY_DIM: tl.constexpr,
    NEOX: tl.constexpr,
    BLOCK_D: tl.constexpr,
):
    """float32 ``[BLOCK_M, BLOCK_D]`` queries, rotated by their reads' angles.

    Each dimension is turned with its partner, which is loaded a second time: the tile
    is small and stays in cache, and no shuffle between threads is needed."""
    half: tl.constexpr = ROTARY_DIM // 2
    d = tl.arange(0, BLOCK_D)
    rotary = d < ROTARY_DIM
    if NEOX:
        angle = tl.where(d < half, d, d - half)
        partner = tl.where(d < half, d + half, d - half)
        sign = tl.where(d < half, -1.0, 1.0)
    else:
        angle = d // 2
        partner = tl.where(d % 2 == 0, d + 1, d - 1)
        sign = tl.where(d % 2 == 0, -1.0, 1.0)
    source = q_ptr + row.to(tl.int64) * stride_row + head * stride_head
    known = active[:, None] & (d < HEAD_DIM)[None, :]
    turns = active[:, None] & rotary[None, :]
    q = tl.load(source[:, None] + d[None, :], mask=known, other=0.0)
    paired = tl.load(source[:, None] + partner[None, :], mask=turns, other=0.0)
    at = table.to(tl.int64)[:, None] * half + angle[None, :]
    cos = tl.load(cos_ptr + at, mask=turns, other=1.0)
    sin = tl.load(sin_ptr + at, mask=turns, other=0.0)
    return q.to(tl.float32) * cos + paired.to(tl.float32) * sin * sign[None, :]


@triton.jit
def attend(
    q_ptr,
    k_ptr,
    v_ptr,
    out_ptr,
    partial_ptr,
    lse_ptr,
    cos_ptr,
    sin_ptr,
    slots_ptr,
    item_piece_ptr,
    item_partial_ptr,
    piece_slot_ptr,
    piece_key_ptr,
    piece_keys_ptr,
    piece_read_ptr,
    read_row_ptr,
    read_limit_ptr,
    read_table_ptr,
    partial_place_ptr,
    scale_log2,
    stride_q_row,
    stride_q_head,
    stride_k_slot,
    stride_k_head,
    stride_v_slot,
    stride_v_head,
    GROUP: tl.constexpr,
    SHARE: tl.constexpr,
    HEADS: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    VALUE_DIM: tl.constexpr,
    ROTARY_DIM: tl.constexpr,
    NEOX: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_D: tl.constexpr,
    BLOCK_V: tl.constexpr,
):
    """Grid ``(items, kv_heads * shares)``; a share is SHARE of a KV head's GROUP query
    heads, all of them unless the group is very large. Row m of the tile is head
    ``m % SHARE`` of the share, of the item's read ``m // SHARE``.

    A row whose only partial result this is goes straight to ``out [T, HEADS, VALUE_DIM]``;
    the others to ``partial [X, HEADS, VALUE_DIM]`` with base-2 log-sum-exps ``lse [X,
    HEADS]``, both float32. An item without reads, as in padded work, does nothing."""
    item = tl.program_id(0)
    shares: tl.constexpr = (GROUP + SHARE - 1) // SHARE
    kv_head = tl.program_id(1) // shares
    first_head = tl.program_id(1) % shares * SHARE
    first_partial = tl.load(item_partial_ptr + item)
    reads = tl.load(item_partial_ptr + item + 1) - first_partial
    if reads == 0:
        return
    m = tl.arange(0, BLOCK_M)
    read = m // SHARE
    in_group = first_head + m % SHARE
    head = kv_head * GROUP + in_group
    active = (read < reads) & (in_group < GROUP)
    n = tl.arange(0, BLOCK_N)
    d = tl.arange(0, BLOCK_D)
    e = tl.arange(0, BLOCK_V)
    highest = tl.full([BLOCK_M], float("-inf"), tl.float32)
    total = tl.zeros([BLOCK_M], tl.float32)
    acc = tl.zeros([BLOCK_M, BLOCK_V], tl.float32)

    first_piece = tl.load(item_piece_ptr + item)
    row = tl.load(read_row_ptr + tl.load(piece_read_ptr + first_piece) + read, active, 0)
    for piece in range(first_piece, tl.load(item_piece_ptr + item + 1)):
        first_read = tl.load(piece_read_ptr + piece)
        keys = tl.load(piece_keys_ptr + piece)
        slot = slots_ptr + tl.load(piece_slot_ptr + piece)
        table = tl.load(read_table_ptr + first_read + read, active, 0)
        limit = tl.load(read_limit_ptr + first_read + read, active, 0)
        limit = tl.minimum(limit - tl.load(piece_key_ptr + piece), keys)
        q = rotated_queries(
            q_ptr,
            cos_ptr,
            sin_ptr,
            row,
            table,
            head,
            active,
            stride_q_row,
            stride_q_head,
            HEAD_DIM,
            ROTARY_DIM,
            NEOX,
            BLOCK_D,
        ).to(k_ptr.dtype.element_ty)
        for begin in range(0, keys, BLOCK_N):
            key = begin + n
            at = tl.load(slot + key, key < keys, 0).to(tl.int64)
            k = tl.load(
                k_ptr + at[None, :] * stride_k_slot + kv_head * stride_k_head + d[:, None],
                (key < keys)[None, :] & (d < HEAD_DIM)[:, None],
                0.0,
            )
            v = tl.load(
                v_ptr + at[:, None] * stride_v_slot + kv_head * stride_v_head + e[None, :],
                (key < keys)[:, None] & (e < VALUE_DIM)[None, :],
                0.0,
            )
            # three TF32 products carry float32 nearly whole, on tensor cores
            logits = tl.dot(q, k, input_precision="tf32x3") * scale_log2
            logits = tl.where(key[None, :] < limit[:, None], logits, float("-inf"))
            peak = tl.maximum(highest, tl.max(logits, 1))
            # a row that has seen no key yet has a peak of -inf, and inf - inf is not a number
            base = tl.where(peak == float("-inf"), 0.0, peak)
            weight = tl.exp2(logits - base[:, None])
            shrink = tl.exp2(highest - base)
            total = total * shrink + tl.sum(weight, 1)
            acc = acc * shrink[:, None]
            acc = tl.dot(weight.to(v.dtype), v, acc, input_precision="tf32x3")
            highest = peak

    place = tl.load(partial_place_ptr + first_partial + read, active, 0)
    seen = total > 0
    result = acc / tl.where(seen, total, 1.0)[:, None]
    width = (e < VALUE_DIM)[None, :]
    final = (active & (place < 0))[:, None] & width
    to_out = (row.to(tl.int64) * HEADS + head) * VALUE_DIM
    tl.store(out_ptr + to_out[:, None] + e[None, :], result.to(out_ptr.dtype.element_ty), final)
    partial = active & (place >= 0)
    to_partial = tl.where(partial, place, 0).to(tl.int64) * HEADS + head
    tl.store(
        partial_ptr + (to_partial * VALUE_DIM)[:, None] + e[None, :],
        result,
        partial[:, None] & width,
    )
    lse = tl.where(seen, highest + tl.log2(tl.where(seen, total, 1.0)), float("-inf"))
    tl.store(lse_ptr + to_partial, lse, partial)


@triton.jit
def merge(
    partial_ptr,
    lse_ptr,
    start_ptr,
    out_ptr,
    HEADS: tl.constexpr,
    VALUE_DIM: tl.constexpr,
    BLOCK_P: tl.constexpr,
    BLOCK_V: tl.constexpr,
):
    """Grid ``(T, HEADS)``: the softmax-weighted mean of a row's partial results, which
    lie together. A row without partial results was written by ``attend``."""
    row = tl.program_id(0).to(tl.int64)
    head = tl.program_id(1)
    first = tl.load(start_ptr + row)
    end = tl.load(start_ptr + row + 1)
    if first == end:
        return
    e = tl.arange(0, BLOCK_V)
    p = tl.arange(0, BLOCK_P)
    highest = tl.max(tl.full([BLOCK_P], float("-inf"), tl.float32), 0)
    total = tl.sum(tl.zeros([BLOCK_P], tl.float32), 0)
    acc = tl.zeros([BLOCK_V], tl.float32)
    for begin in range(first, end, BLOCK_P):
        at = (begin + p).to(tl.int64) * HEADS + head
        known = begin + p < end
        lse = tl.load(lse_ptr + at, known, float("-inf"))
        peak = tl.maximum(highest, tl.max(lse, 0))
        base = tl.where(peak == float("-inf"), 0.0, peak)
        weight = tl.exp2(lse - base)
        shrink = tl.exp2(highest - base)
        part = tl.load(
            partial_ptr + (at * VALUE_DIM)[:, None] + e[None, :],
            known[:, None] & (e < VALUE_DIM)[None, :],
            0.0,
        )
        acc = acc * shrink + tl.sum(weight[:, None] * part, 0)
        total = total * shrink + tl.sum(weight, 0)
        highest = peak
    tl.store(
        out_ptr + (row * HEADS + head) * VALUE_DIM + e,
        (acc / total).to(out_ptr.dtype.element_ty),
        e < VALUE_DIM,
    )
