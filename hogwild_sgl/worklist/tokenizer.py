"""The tokenizer of the worklist model: whole words, and bytes for everything else."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from hogwild_sgl.prompts import WORKER_NAMES
from hogwild_sgl.worklist import words

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

# Messages one after the other: the formatting has all the words.
_TEMPLATE = "{% for message in messages %}{{ message['content'] }}{% endfor %}"
_BYTE_SCORE = -20.0


def pieces() -> Iterator[str]:
    """The words of the vocabulary; each is one token."""
    yield from (words.SUMS, words.PREAMBLE, words.OTHERS, words.OWN, words.BREAK)
    yield from (words.CHECK, words.YES, words.NO, words.IS_WITH, words.WAITING)
    yield from (words.ALL_DONE, words.SMALLEST, words.LARGEST)
    yield from (".", ",", ";", ":", " +", " =", words.SAYS)
    yield from (f" {number}" for number in range(100))
    yield from (f" {name}" for name in words.ITEM_NAMES)
    yield from (f" {name}" for name in WORKER_NAMES)
    yield from (f"**{name}" for name in WORKER_NAMES)
    yield from (f" [{number}" for number in range(1, words.MAX_STEPS + 1))


def build() -> PreTrainedTokenizerFast:
    """A text is split into as few pieces as possible; what is no piece becomes bytes."""
    from tokenizers import Tokenizer, decoders, models
    from transformers import PreTrainedTokenizerFast

    vocabulary = [(words.END, 0.0)]
    vocabulary += [(f"<0x{byte:02X}>", _BYTE_SCORE) for byte in range(256)]
    vocabulary += [(piece, -1.0) for piece in pieces()]
    tokenizer = Tokenizer(models.Unigram(vocabulary, unk_id=0, byte_fallback=True))
    tokenizer.decoder = decoders.Sequence([decoders.ByteFallback(), decoders.Fuse()])
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        eos_token=words.END,
        pad_token=words.END,
        chat_template=_TEMPLATE,
        clean_up_tokenization_spaces=False,
    )
