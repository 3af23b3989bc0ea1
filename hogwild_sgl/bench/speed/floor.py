"""What no server can be faster than: the linear layers alone, and the bytes to read."""

from __future__ import annotations

import json
import statistics
import time
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors import safe_open


@dataclass(frozen=True)
class Floor:
    """A model's linear layers in eager PyTorch. weights: ``[out, in]``, in order of use.

    kv_bytes: bytes of KV per cached token.
    """

    weights: list[torch.Tensor]
    kv_bytes: int

    @classmethod
    def of(cls, folder: Path, dtype: torch.dtype) -> Floor:
        """The two-dimensional weights of a model folder, the output layer's included."""
        config = json.loads((folder / "config.json").read_text())
        weights: dict[str, torch.Tensor] = {}
        for file in sorted(folder.glob("*.safetensors")):
            with safe_open(file, "pt") as tensors:
                for name in tensors.keys():
                    tensor = tensors.get_tensor(name)
                    if tensor.ndim == 2:
                        weights[name] = tensor.to(dtype)
        if not weights:
            raise ValueError(f"no safetensors weights in {folder}")
        embedding = next(name for name in weights if "embed_tokens" in name)
        if any("lm_head" in name for name in weights):
            del weights[embedding]
        heads = config.get("num_key_value_heads") or config["num_attention_heads"]
        size = config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"]
        kv = 2 * config["num_hidden_layers"] * heads * size * dtype.itemsize
        return cls(list(weights.values()), kv)

    def linear_seconds(self, rows: int, rounds: int = 1) -> float:
        """Median seconds for all linear layers at ``rows`` rows."""
        inputs = {w.shape[1]: torch.randn(rows, w.shape[1]).to(w.dtype) for w in self.weights}
        times = []
        with torch.inference_mode():
            for _ in range(rounds):
                begin = time.perf_counter()
                for weight in self.weights:
                    torch.nn.functional.linear(inputs[weight.shape[1]], weight)
                times.append(time.perf_counter() - begin)
        return statistics.median(times)

    def read_seconds(self, cache: int, bandwidth: float) -> float:
        """Seconds to read weights and ``cache`` tokens of KV once, at bytes per second."""
        return (sum(w.nbytes for w in self.weights) + cache * self.kv_bytes) / bandwidth


def read_bandwidth(megabytes: int = 512, rounds: int = 7) -> float:
    """Measured bytes per second of a plain sum over memory that no cache holds."""
    block = torch.ones(megabytes << 18, dtype=torch.float32)
    times = []
    for _ in range(rounds):
        begin = time.perf_counter()
        block.sum()
        times.append(time.perf_counter() - begin)
    return block.nbytes / min(times)
