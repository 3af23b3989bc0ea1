"""Taking rows out of SGLang's running batch for one forward, and putting them back."""

from __future__ import annotations

import copy
import weakref
from typing import Any

# Where a scheduler keeps the batch of the rows that sit out the forward under way.
HELD = "hogwild_held"


def split(batch: Any, places: list[int]) -> tuple[Any, Any]:
    """A running batch as two: without the requests at ``places``, and only these.

    The batch itself is one of the two; the other has tensors and a sampling state of its
    own, so that a forward of one leaves the other as it is.
    """
    taken = set(places)
    rest = [place for place in range(len(batch.reqs)) if place not in taken]
    if not rest:
        return _empty(), batch
    held = _twin(batch)
    held.filter_batch(keep_indices=places)
    batch.filter_batch(keep_indices=rest)
    return batch, held


def rejoin(scheduler: Any) -> None:
    """After a forward: the rows that sat it out run on."""
    held = scheduler.__dict__.pop(HELD, None)
    if held is not None:
        scheduler.running_batch = join(scheduler.running_batch, held)


def join(batch: Any, held: Any) -> Any:
    if batch.is_empty():
        held.batch_is_full = batch.batch_is_full
        return held
    batch.merge_batch(held)
    return batch


def _empty() -> Any:
    from sglang.srt.managers.schedule_batch import ScheduleBatch

    return ScheduleBatch(reqs=[], batch_is_full=False)


def _twin(batch: Any) -> Any:
    """The same batch once more. Its tensors are replaced when they change, never written to;
    what SGLang's penalties have counted is written to, and copied."""
    twin = copy.copy(batch)
    twin.sampling_info = info = copy.copy(batch.sampling_info)
    info.penalizer_orchestrator = orchestrator = copy.deepcopy(info.penalizer_orchestrator)
    orchestrator.batch = twin
    for penalizer in orchestrator.penalizers.values():
        penalizer._orchestrator_ref = weakref.ref(orchestrator)
    return twin
