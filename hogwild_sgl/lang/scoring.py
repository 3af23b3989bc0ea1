"""Choosing between given continuations by their log-probabilities (``sgl.select``)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from sglang.lang.choices import ChoicesDecision, ChoicesSamplingMethod

from hogwild_sgl.client.client import Client


@dataclass(frozen=True)
class Candidate:
    """One choice behind its context. ids: both, tokenised together. length: tokens at the
    end of ``ids`` that belong to the choice."""

    ids: tuple[int, ...]
    length: int


# Log-probabilities of a candidate's choice tokens, each [logprob, token id, text] as in
# SGLang's ``input_token_logprobs``.
Score = Callable[[Candidate], list[Sequence[Any]]]


def candidates(context: Sequence[int], joined: Sequence[Sequence[int]]) -> list[Candidate]:
    """The choices as tokens. context: ids of the context alone; joined: ids of context and
    choice, for each choice.

    Where context and choice merge into one token, that token counts as the choice's. All
    choices are scored from the same place, or their sums could not be compared.
    """
    start = min(_common(context, ids) for ids in joined)
    found = [Candidate(tuple(ids), len(ids) - start) for ids in joined]
    if any(candidate.length < 1 for candidate in found):
        raise ValueError("sgl.select: a choice is empty")
    return found


def decide(
    choices: list[str],
    found: Sequence[Candidate],
    method: ChoicesSamplingMethod,
    score: Score,
    client: Client,
) -> ChoicesDecision:
    """Scores all candidates at once and lets ``method`` choose."""
    free = None
    with ThreadPoolExecutor(len(found)) as pool:
        scored = list(pool.map(score, found))
        if method.requires_unconditional_logprobs:
            alone = (candidate.ids[-candidate.length :] for candidate in found)
            free = list(pool.map(lambda ids: score_ids(client, ids, 0), alone))
    for entries in scored:
        if any(entry[0] is None for entry in entries):
            raise ValueError(
                "sgl.select: there is no token before the choices to score their first "
                "tokens by; append some text first"
            )
    means = [sum(entry[0] for entry in entries) / len(entries) for entries in scored]
    return method(
        choices=choices,
        normalized_prompt_logprobs=means,
        input_token_logprobs=scored,
        output_token_logprobs=[[] for _ in scored],
        unconditional_token_logprobs=free,
    )


def score_ids(client: Client, ids: Sequence[int], start: int) -> list[Any]:
    """Log-probabilities of a prompt's tokens from ``start`` on, by an ordinary request."""
    body = {
        "input_ids": list(ids),
        "sampling_params": {"max_new_tokens": 0, "temperature": 0},
        "return_logprob": True,
        "logprob_start_len": start,
    }
    return client.generate(body)["meta_info"]["input_token_logprobs"]


def _common(one: Sequence[int], other: Sequence[int]) -> int:
    """Length of the common beginning."""
    pairs = enumerate(zip(one, other, strict=False))
    return next((i for i, (a, b) in pairs if a != b), min(len(one), len(other)))
