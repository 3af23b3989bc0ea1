"""A model's decoder in one call per forward, where its layers are ones that are known.

``csrc/decoder.h`` does for the few rows of a decode step what SGLang's models do layer by
layer. Everything else (prefills, other models, captured hidden states) goes the models' own
way, whose operators ``modules.py`` has sped up.
"""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Any

import torch
from sglang.srt.model_executor.forward_context import get_attn_backend

from runtime_patch.attention.backend import HogwildAttentionBackend
from runtime_patch.attention.cpp.kernel import TYPES, Cpp
from runtime_patch.cpu.families import head_norms, require_covered
from runtime_patch.cpu.ops import MAX_ROWS, Ops
from runtime_patch.cpu.structures import Decoder, Layer, Step

if TYPE_CHECKING:
    from sglang.srt.model_executor.forward_batch_info import ForwardBatch


class WholeDecoder:
    """The forward of a model without its head (``LlamaModel`` and its like).

    Raises NotCovered if the model is not one that can be done so. It stays in the same
    memory: weights that are updated in place are seen, and so are others in their stead.
    """

    def __init__(self, decoder: torch.nn.Module, ops: Ops):
        require_covered(decoder)
        self._decoder, self._ops = decoder, ops
        self._original = decoder.forward
        self._tensors = [tensor for layer in decoder.layers for tensor in _tensors_of(layer)]
        self._layers = (Layer * len(decoder.layers))()
        self._attention = attention = decoder.layers[0].self_attn
        norms = head_norms(attention) or [decoder.norm]
        self._model = Decoder(
            type=TYPES[decoder.norm.weight.dtype],
            num_layers=len(decoder.layers),
            layers=self._layers,
            hidden=decoder.norm.weight.shape[0],
            heads=attention.num_heads,
            kv_heads=attention.num_kv_heads,
            dim=attention.head_dim,
            inner=decoder.layers[0].mlp.down_proj.weight.shape[1],
            epsilon=decoder.norm.variance_epsilon,
            head_epsilon=norms[0].variance_epsilon,
            neox=attention.rotary_emb.is_neox_style,
        )
        width = (attention.num_heads + 2 * attention.num_kv_heads) * attention.head_dim
        # Only its shape and strides are used: the memory is csrc/decoder.h's own.
        self._qkv = torch.empty(MAX_ROWS, width, dtype=decoder.norm.weight.dtype)
        self._pointers: list[int | None] = []

    def __call__(
        self,
        input_ids: torch.Tensor,
        positions: torch.Tensor,
        forward_batch: ForwardBatch,
        input_embeds: torch.Tensor | None = None,
        pp_proxy_tensors: Any = None,
    ) -> Any:
        backend = get_attn_backend()
        if (
            input_embeds is not None
            or pp_proxy_tensors is not None
            or not self._covers(positions, forward_batch, backend)
        ):
            return self._original(
                input_ids, positions, forward_batch, input_embeds, pp_proxy_tensors
            )
        self._find_memory(backend.pool)
        hidden = self._decoder.embed_tokens(input_ids)
        step = Step(
            rows=len(hidden),
            threads=torch.get_num_threads(),
            hidden=hidden.data_ptr(),
            positions=positions.data_ptr(),
            slots=forward_batch.out_cache_loc.data_ptr(),
            attention=ctypes.pointer(self._prepare_attention(backend, len(hidden))),
        )
        self._ops.decode(self._model, step)
        return hidden

    def _covers(self, positions: torch.Tensor, batch: ForwardBatch, backend: Any) -> bool:
        rows = positions.shape[0]
        slots = batch.out_cache_loc
        return (
            0 < rows <= MAX_ROWS
            and (batch.forward_mode.is_decode() or batch.forward_mode.is_extend())
            and isinstance(backend, HogwildAttentionBackend)
            and isinstance(backend.kernel, Cpp)
            and backend.plan.num_rows == rows
            and backend.pool.dtype == self._qkv.dtype
            and not self._decoder.layers_to_capture
            and all(x.dtype == torch.int64 and x.is_contiguous() for x in (positions, slots))
            and positions.dim() == 1
            and slots.shape == positions.shape
        )

    def _prepare_attention(self, backend: HogwildAttentionBackend, rows: int) -> Any:
        attention = self._attention
        q = self._qkv[:rows, : attention.num_heads * attention.head_dim]
        layer = attention.attn.layer_id
        return backend.kernel.prepared(
            backend.plan,
            q.view(rows, attention.num_heads, attention.head_dim),
            backend.pool.get_key_buffer(layer),
            backend.pool.get_value_buffer(layer),
            backend.rope,
            attention.scaling,
        ).call

    def _find_memory(self, pool: Any) -> None:
        """Look up where weights, tables and cache lie, if anything has moved."""
        decoder, table = self._decoder, self._attention.rotary_emb.cos_sin_cache
        tensors = [*self._tensors, decoder.norm.weight, table, *pool.k_buffer, *pool.v_buffer]
        pointers = [None if tensor is None else tensor.data_ptr() for tensor in tensors]
        if pointers == self._pointers:
            return
        self._pointers = pointers
        names = [name for name, _ in Layer._fields_[:-2]]
        for i, (layer, entry) in enumerate(zip(decoder.layers, self._layers, strict=True)):
            for name, pointer in zip(names, pointers[i * len(names) :], strict=False):
                setattr(entry, name, pointer)
            layer_id = layer.self_attn.attn.layer_id
            entry.k_cache = pool.get_key_buffer(layer_id).data_ptr()
            entry.v_cache = pool.get_value_buffer(layer_id).data_ptr()
        self._model.final_norm = decoder.norm.weight.data_ptr()
        self._model.table = table.data_ptr()
        self._model.table_rows, self._model.half = table.shape[0], table.shape[1] // 2


def _tensors_of(layer: torch.nn.Module) -> list[torch.nn.Parameter | None]:
    """A layer's parameters in the order of ``Layer``."""
    attention, mlp = layer.self_attn, layer.mlp
    q_norm, k_norm = [norm.weight for norm in head_norms(attention)] or (None, None)
    return [
        layer.input_layernorm.weight,
        *_both(attention.qkv_proj),
        q_norm,
        k_norm,
        *_both(attention.o_proj),
        layer.post_attention_layernorm.weight,
        *_both(mlp.gate_up_proj),
        *_both(mlp.down_proj),
    ]


def _both(linear: torch.nn.Module) -> tuple[torch.nn.Parameter, torch.nn.Parameter | None]:
    return linear.weight, linear.bias
