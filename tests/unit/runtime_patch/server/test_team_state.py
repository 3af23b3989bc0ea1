"""What the server process keeps of a team: who writes, and in which order events go out."""

from __future__ import annotations

import asyncio

import pytest

from runtime_patch.errors import ServiceError
from runtime_patch.server.team_state import LiveStep, TeamMirror, WorkerState


@pytest.fixture
def mirror() -> TeamMirror:
    return TeamMirror(
        name="hw-1",
        layout="combined",
        seed=0,
        workers=[WorkerState("Alice"), WorkerState("Bob")],
        dp_rank=0,
        prompt_tokens=3,
        header_tokens={"others": 0, "own": 0},
        context_length=100,
        idle_timeout=5.0,
        opened=True,
    )


def step(worker: int | None, number: int = 1, **other) -> LiveStep:
    given = {"rid": f"{worker} {number}", "reader": worker is None, "said": False, "fed": [9]}
    futures = {"ended": None, "begun": None}
    return LiveStep(worker=worker, number=number, **given | futures | other)


def published(index: int) -> dict:
    return {"index": index, "tokens": [9, 10], "carried": 11}


def heard(queue: asyncio.Queue) -> list[tuple]:
    events = [queue.get_nowait() for _ in range(queue.qsize())]
    return [(event["type"], event.get("text") or event.get("reason")) for event in events]


def test_a_publication_goes_out_behind_the_steps_whole_text(mirror):
    queue = asyncio.Queue()
    mirror.listeners.append(queue)
    alice = step(0)
    mirror.begin(alice)
    mirror.tell_text(alice, "two")
    mirror.publish(alice, published(0), "Go two")
    assert heard(queue) == [("text", "two")]
    mirror.tell_text(alice, " of")
    alice.told = True
    mirror.flush()
    assert heard(queue) == [("text", " of"), ("published", "Go two")]


def test_events_keep_their_order_behind_one_that_waits_and_texts_do_not_wait(mirror):
    queue = asyncio.Queue()
    mirror.listeners.append(queue)
    alice, bob = step(0), step(1)
    for live in (alice, bob):
        mirror.begin(live)
    mirror.publish(alice, published(0), "Alice's")
    bob.told = True
    mirror.publish(bob, published(1), "Bob's")
    mirror.tell_text(alice, "last")
    assert heard(queue) == [("text", "last")]
    alice.told = True
    mirror.flush()
    assert heard(queue) == [("published", "Alice's"), ("published", "Bob's")]


def test_everything_goes_out_when_the_team_is_closed(mirror):
    queue = asyncio.Queue()
    mirror.listeners.append(queue)
    mirror.tell({"type": "dropped", "reason": "closed"}, after=step(0))
    mirror.tell({"type": "closed", "reason": "idle"})
    assert heard(queue) == []
    mirror.flush(everything=True)
    assert heard(queue) == [("dropped", "closed"), ("closed", "idle")]


def test_a_published_step_counts_and_hands_on_the_token_it_carries(mirror):
    alice = step(0)
    mirror.begin(alice)
    mirror.publish(alice, published(0), "Go two")
    mirror.end(alice)
    worker = mirror.workers[0]
    assert (worker.steps, worker.tokens, worker.carried, worker.live) == (1, 2, 11, None)
    assert mirror.steps == [
        {"index": 0, "worker": 0, "name": "Alice", "number": 1, "tokens": 2, "text": "Go two"}
    ]


def test_a_second_live_step_is_a_conflict_and_a_reader_is_none(mirror):
    mirror.begin(step(0))
    mirror.begin(step(None, 1))
    mirror.begin(step(0, 1, reader=True, rid="reader"))
    with pytest.raises(ServiceError, match="Alice already has a live step") as refused:
        mirror.begin(step(0, 2))
    assert refused.value.status == 409


def test_one_step_may_wait_behind_a_live_one_and_takes_its_place(mirror):
    first, second = step(0), step(0, 1, rid="second")
    mirror.begin(first)
    mirror.begin(second, after_live=True)
    assert second.number == 2
    with pytest.raises(ServiceError, match="waiting behind its live one") as refused:
        mirror.begin(step(0, 1, rid="third"), after_live=True)
    assert refused.value.status == 409
    mirror.end(first)
    assert mirror.workers[0].live is second and mirror.workers[0].queued is None


@pytest.mark.parametrize("after_live", [False, True])
def test_a_step_that_would_have_another_number_than_it_was_meant_to_is_refused(mirror, after_live):
    if after_live:
        mirror.begin(step(0))
    meant = 2 if after_live else 1
    with pytest.raises(ServiceError, match=f"step {meant} of Alice, not 7") as refused:
        mirror.begin(step(0, rid="x"), after_live=after_live, number=7)
    assert (refused.value.status, refused.value.kind) == (409, "not_begun")
    mirror.begin(step(0, rid="x"), after_live=after_live, number=meant)


@pytest.mark.parametrize(
    ("change", "idle"),
    [
        ({}, True),
        ({"idle_timeout": None}, False),
        ({"opened": False}, False),
        ({"closing": True}, False),
        ({"last_used": 96.0}, False),
    ],
    ids=str,
)
def test_a_team_is_idle_when_it_was_not_used_for_its_idle_time(mirror, change, idle):
    mirror.last_used = 90.0
    for name, value in change.items():
        setattr(mirror, name, value)
    assert mirror.idle_since(100.0) is idle


def test_a_team_with_something_live_is_not_idle(mirror):
    mirror.last_used = 0.0
    reader = step(None)
    mirror.begin(reader)
    assert not mirror.idle_since(100.0)
    mirror.end(reader)
    assert mirror.idle_since(100.0)


@pytest.mark.parametrize("worker", [0, "Alice"])
def test_a_worker_is_known_by_number_and_by_name(mirror, worker):
    assert mirror.number_of(worker) == 0
    for unknown in (2, -1, "alice", ""):
        with pytest.raises(ServiceError, match="0 Alice, 1 Bob"):
            mirror.number_of(unknown)
