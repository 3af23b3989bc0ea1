"""Compares what requests sampled with what the oracle predicts for them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from tests.oracle.record import Prediction

# Logits of a float32 model are within about 1e-4 of the float64 ones.
TIE = 2e-4


@dataclass(frozen=True)
class Sampled:
    """A greedy request: the tokens it fed, in its own row, and those it put out."""

    fed: Sequence[int]
    output: Sequence[int]


@dataclass
class Agreement:
    """equal: output tokens that are the oracle's greedy ones.
    ties: the others whose logit is within TIE of the greedy one's, as (rid, index, gap).
    wrong: the rest, likewise, and what the record lacks or contradicts, in words."""

    equal: int = 0
    ties: list[tuple[str, int, float]] = field(default_factory=list)
    wrong: list[object] = field(default_factory=list)


def compare(predictions: Iterable[Prediction], requests: Mapping[str, Sampled]) -> Agreement:
    """Every output token of every request must have been predicted."""
    result = Agreement()
    seen: dict[str, set[int]] = {rid: set() for rid in requests}
    for prediction in predictions:
        if prediction.rid not in requests:
            continue
        request = requests[prediction.rid]
        known = [*request.fed, *request.output]
        end = prediction.position + len(prediction.tokens)
        if list(prediction.tokens) != known[prediction.position : end]:
            result.wrong.append(f"{prediction.rid} fed other tokens than it reported")
        index = end - len(request.fed)
        if not 0 <= index < len(request.output) or index in seen[prediction.rid]:
            continue
        seen[prediction.rid].add(index)
        logits = prediction.logits[-1]
        gap = float(logits.max() - logits[request.output[index]])
        if gap == 0:
            result.equal += 1
        else:
            (result.ties if gap < TIE else result.wrong).append((prediction.rid, index, gap))
    for rid, indices in seen.items():
        missing = len(requests[rid].output) - len(indices)
        if missing:
            result.wrong.append(f"{missing} tokens of {rid} are not in the record")
    return result
