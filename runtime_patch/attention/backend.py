"""The attention backend that SGLang calls: builds the plan, stores K and V, runs a kernel.

The only module of this package that imports SGLang.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import torch
from sglang.srt.layers.attention.base_attn_backend import AttentionBackend
from sglang.srt.mem_cache.memory_pool import KVWriteLoc

from runtime_patch.attention.kernel import choose
from runtime_patch.attention.model_support import find_rope
from runtime_patch.attention.plan import Plan, build_plan
from runtime_patch.attention.views import OrdinaryViews, ViewSource
from runtime_patch.versions import require_tested_sglang

if TYPE_CHECKING:
    from sglang.srt.layers.radix_attention import RadixAttention
    from sglang.srt.model_executor.forward_batch_info import ForwardBatch
    from sglang.srt.model_executor.model_runner import ModelRunner

logger = logging.getLogger(__name__)


class HogwildAttentionBackend(AttentionBackend):
    """Attention over views, for team requests and ordinary ones in the same batch.

    view_source: what the requests of a forward attend to; the scheduler's teams once it
        has them.
    plan: of the forward under way.
    pool, rope, kernel: SGLang's KV pool, the model's rotation, what computes attention.
    """

    def __init__(self, runner: ModelRunner):
        super().__init__()
        require_tested_sglang()
        self.view_source: ViewSource = OrdinaryViews()
        self.rope = find_rope(runner.model, runner.model_config)
        self.kernel = choose(None, runner.device)
        self._rows = runner.req_to_token_pool.req_to_token
        self.pool = runner.token_to_kv_pool
        self.plan: Plan | None = None
        logger.info("hogwild: attention kernel %s on %s", self.kernel.name, runner.device)

    def init_forward_metadata(self, forward_batch: ForwardBatch) -> None:
        """One plan per forward, used by every layer."""
        lengths = forward_batch.seq_lens.tolist()
        pool_rows = forward_batch.req_pool_indices.tolist()
        if forward_batch.forward_mode.is_extend():
            rows = forward_batch.extend_seq_lens.tolist()
        else:
            rows = [1] * len(lengths)
        rids = forward_batch.rids or [f"row {row}" for row in pool_rows]
        written = {
            rid: self._rows[row, :length].to(torch.int64)
            for rid, row, length in zip(rids, pool_rows, lengths, strict=True)
        }
        views = self.view_source.views(rids, rows, written, forward_batch.input_ids)
        self.plan = build_plan(views)

    def forward_extend(
        self,
        q: torch.Tensor,
        k: torch.Tensor,
        v: torch.Tensor,
        layer: RadixAttention,
        forward_batch: ForwardBatch,
        save_kv_cache: bool = True,
        **unsupported: Any,
    ) -> torch.Tensor:
        """q ``[T, H * D]``, k ``[T, KH * D]``, v ``[T, KH * Dv]`` -> ``[T, H * Dv]``.

        All new K and V are stored before any row attends: the rows of one forward see
        one another's newest tokens (the paper's same-step visibility)."""
        if unsupported:
            raise NotImplementedError(f"hogwild attention takes no {', '.join(unsupported)}")
        if save_kv_cache:
            self.pool.set_kv_buffer(layer, KVWriteLoc(forward_batch.out_cache_loc, None), k, v)
        out = self.kernel(
            self.plan,
            q.reshape(-1, layer.tp_q_head_num, layer.qk_head_dim),
            self.pool.get_key_buffer(layer.layer_id),
            self.pool.get_value_buffer(layer.layer_id),
            self.rope,
            layer.scaling,
        )
        return out.reshape(-1, layer.tp_q_head_num * layer.v_head_dim)

    forward_decode = forward_extend
