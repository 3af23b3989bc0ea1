"""The structures of csrc/decoder.h, in the same order."""

from __future__ import annotations

from ctypes import POINTER, Structure, c_double, c_int64, c_void_p

from runtime_patch.attention.cpp.kernel import Call


class Layer(Structure):
    """Pointers to a layer's weights and cache; those of biases and head norms may be None."""

    _fields_ = [
        (name, c_void_p)
        for name in (
            *("input_norm", "qkv", "qkv_bias", "q_norm", "k_norm", "output", "output_bias"),
            *("post_norm", "gate_up", "gate_up_bias", "down", "down_bias"),
            *("k_cache", "v_cache"),
        )
    ]


class Decoder(Structure):
    """A model: what stays the same from one forward to the next."""

    _fields_ = [
        ("type", c_int64),
        ("num_layers", c_int64),
        ("layers", POINTER(Layer)),
        ("final_norm", c_void_p),
        *((name, c_int64) for name in ("hidden", "heads", "kv_heads", "dim", "inner")),
        ("epsilon", c_double),
        ("head_epsilon", c_double),
        ("table", c_void_p),
        *((name, c_int64) for name in ("table_rows", "half", "neox")),
    ]


class Step(Structure):
    """One forward."""

    _fields_ = [
        ("rows", c_int64),
        ("threads", c_int64),
        ("hidden", c_void_p),
        ("positions", c_void_p),
        ("slots", c_void_p),
        ("attention", POINTER(Call)),
    ]
