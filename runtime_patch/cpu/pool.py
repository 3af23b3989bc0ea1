"""SGLang's KV pool, in huge pages."""

from __future__ import annotations

import math

import torch
from sglang.srt.mem_cache.memory_pool import MHATokenToKVPool

from runtime_patch.cpu import pages


class HugePagePool(MHATokenToKVPool):
    """Keys of a request lie anywhere in the pool, each on a small page of its own."""

    def _create_buffers_normal(self) -> None:
        if self.kv_cache_layout != "nhd" or str(self.device) != "cpu":
            return super()._create_buffers_normal()
        k_shape, v_shape = self._kv_buffer_shapes()
        self.k_buffer = [self._zeros(k_shape) for _ in range(self.layer_num)]
        self.v_buffer = [self._zeros(v_shape) for _ in range(self.layer_num)]

    def _zeros(self, shape: tuple[int, ...]) -> torch.Tensor:
        memory = pages.empty(math.prod(shape) * self.store_dtype.itemsize)
        return memory.view(self.store_dtype).view(shape)
