"""A decoder's weights in float64 and the parts of a layer around attention."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.nn.functional as F
from safetensors.torch import load_file

from tests.oracle.rope import Rotary, rotary_from_config

INTERLEAVED = ("glm4", "ernie4_5")  # model types that rotate the pairs (2i, 2i + 1)


@dataclass(frozen=True)
class Decoder:
    """A decoder-only model: pre-norm layers, gated SiLU, grouped query attention.

    What a layer has (biases, q/k norms, norms behind attention and MLP, a fused gate)
    is read off the names of its weights.
    """

    weights: dict[str, torch.Tensor]
    rotary: Rotary
    layers: int
    head_dim: int
    epsilon: float
    layer_norm: bool

    @classmethod
    def load(cls, folder: Path | str) -> Decoder:
        folder = Path(folder)
        config = json.loads((folder / "config.json").read_text())
        head_dim = config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"]
        layer_norm = "layer_norm_eps" in config
        return cls(
            weights={
                name: tensor.double()
                for name, tensor in load_file(folder / "model.safetensors").items()
            },
            rotary=rotary_from_config(config, head_dim, config["model_type"] not in INTERLEAVED),
            layers=config["num_hidden_layers"],
            head_dim=head_dim,
            epsilon=config["layer_norm_eps" if layer_norm else "rms_norm_eps"],
            layer_norm=layer_norm,
        )

    @property
    def vocabulary(self) -> int:
        return self.weights["model.embed_tokens.weight"].shape[0]

    def embed(self, tokens: list[int]) -> torch.Tensor:
        return self.weights["model.embed_tokens.weight"][tokens]

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """``hidden [n, width]`` to logits ``[n, vocabulary]``."""
        head = self.weights.get("lm_head.weight", self.weights["model.embed_tokens.weight"])
        return self._norm("model.norm", hidden) @ head.T

    def project(
        self, layer: int, hidden: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Queries, keys, values ``[n, heads, head_dim]``, all before RoPE."""
        at = f"model.layers.{layer}."
        x = self._norm(at + "input_layernorm", hidden)
        q, k, v = (
            self._linear(f"{at}self_attn.{name}_proj", x).unflatten(-1, (-1, self.head_dim))
            for name in "qkv"
        )
        if f"{at}self_attn.q_norm.weight" in self.weights:
            q = self._norm(at + "self_attn.q_norm", q)
            k = self._norm(at + "self_attn.k_norm", k)
        return q, k, v

    def finish(self, layer: int, hidden: torch.Tensor, attended: torch.Tensor) -> torch.Tensor:
        """The rest of a layer behind attention ``[n, heads, head_dim]``."""
        at = f"model.layers.{layer}."
        branch = self._linear(at + "self_attn.o_proj", attended.flatten(1))
        hidden = hidden + self._optional_norm(at + "post_self_attn_layernorm", branch)
        x = self._norm(at + "post_attention_layernorm", hidden)
        if f"{at}mlp.gate_up_proj.weight" in self.weights:
            gate, up = self._linear(at + "mlp.gate_up_proj", x).chunk(2, dim=-1)
        else:
            gate, up = (self._linear(f"{at}mlp.{name}_proj", x) for name in ("gate", "up"))
        branch = self._linear(at + "mlp.down_proj", F.silu(gate) * up)
        return hidden + self._optional_norm(at + "post_mlp_layernorm", branch)

    def _linear(self, name: str, x: torch.Tensor) -> torch.Tensor:
        return F.linear(x, self.weights[name + ".weight"], self.weights.get(name + ".bias"))

    def _norm(self, name: str, x: torch.Tensor) -> torch.Tensor:
        if self.layer_norm:
            x = x - x.mean(-1, keepdim=True)
        x = x / (x.square().mean(-1, keepdim=True) + self.epsilon).sqrt()
        x = x * self.weights[name + ".weight"]
        bias = self.weights.get(name + ".bias")
        return x if bias is None else x + bias

    def _optional_norm(self, name: str, x: torch.Tensor) -> torch.Tensor:
        return self._norm(name, x) if name + ".weight" in self.weights else x
