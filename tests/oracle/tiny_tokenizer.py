"""A tokenizer of 320 tokens: every byte, step ends, some words, chat markers.

It adds ``<s>`` in front of a text like the tokenizers of many real models, so a header
tokenised with special tokens shows as an error.
"""

from __future__ import annotations

import json
from pathlib import Path

from tokenizers import AddedToken, Tokenizer, decoders, pre_tokenizers, processors
from tokenizers.models import BPE

SIZE = 320
PAD, BOS, EOS, CHAT_START, CHAT_END = range(5)
SPECIAL = ("<pad>", "<s>", "</s>", "<|im_start|>", "<|im_end|>")
STEP_ENDS = (".\n\n", "!\n\n", "?\n\n", "。\n\n")
PIECES = ("\n\n", *STEP_ENDS, ":\n\n", "```", "$$", "**", ": ", ". ", ", ")
WORDS = (
    *(" the", " we", " add", " so", " is", " of", " and", " it", " to", " in", " one", " two"),
    *(" sum", " then", " now", "ing", " Bob", " Alice", " yes", " no", " x", " ="),
)
CHAT_TEMPLATE = (
    "{{ bos_token }}{% for message in messages %}"
    "<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n"
    "{% if enable_thinking is defined and enable_thinking %}<think>\n{% endif %}{% endif %}"
)


def build_tokenizer() -> Tokenizer:
    """The tokenizer; ids 0 to 4 are the special tokens, then the bytes, then the pieces."""
    vocabulary = {token: index for index, token in enumerate(SPECIAL)}
    for letter in sorted(pre_tokenizers.ByteLevel.alphabet()):
        vocabulary[letter] = len(vocabulary)
    merges: list[tuple[str, str]] = []
    for text in (*PIECES, *WORDS):
        _learn(_visible(text), vocabulary, merges)
    if len(vocabulary) != SIZE:
        raise ValueError(f"the pieces make {len(vocabulary)} tokens, not {SIZE}")
    tokenizer = Tokenizer(BPE(vocab=vocabulary, merges=merges))
    tokenizer.add_special_tokens([AddedToken(token, normalized=False) for token in SPECIAL])
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A", pair="<s> $A $B", special_tokens=[("<s>", BOS)]
    )
    return tokenizer


def write_tokenizer(folder: Path) -> None:
    build_tokenizer().save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(
        json.dumps(
            {
                "tokenizer_class": "PreTrainedTokenizerFast",
                "bos_token": SPECIAL[BOS],
                "eos_token": SPECIAL[EOS],
                "pad_token": SPECIAL[PAD],
                "unk_token": SPECIAL[PAD],
                "chat_template": CHAT_TEMPLATE,
                "clean_up_tokenization_spaces": False,
                "model_max_length": 1 << 20,
            }
        )
    )


def _visible(text: str) -> str:
    """``text`` in the byte-level alphabet of the tokenizer's vocabulary."""
    pieces = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    return "".join(piece for piece, _ in pieces.pre_tokenize_str(text))


def _learn(text: str, vocabulary: dict[str, int], merges: list[tuple[str, str]]) -> None:
    """Add the merges that make ``text`` one token."""
    parts = list(text)
    for pair in merges:
        parts = _merge(parts, pair)
    while len(parts) > 1:
        pair = (parts[0], parts[1])
        merges.append(pair)
        vocabulary[pair[0] + pair[1]] = len(vocabulary)
        parts = _merge(parts, pair)


def _merge(parts: list[str], pair: tuple[str, str]) -> list[str]:
    merged: list[str] = []
    for part in parts:
        if merged and (merged[-1], part) == pair:
            merged[-1] += part
        else:
            merged.append(part)
    return merged
