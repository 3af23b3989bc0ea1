"""What the server process keeps of a team: who writes, and in which order events go out."""

from __future__ import annotations

import asyncio

import pytest

from runtime_patch.errors import TeamError
from runtime_patch.server.team_state import LiveStep, TeamState, WorkerState


@pytest.fixture
def team() -> TeamState:
    return TeamState(
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
    given = {"rid": f"{worker} {number}", "reader": worker is None, "said": False, "fed_tokens": 1}
    futures = {"ended": None, "begun": None}
    return LiveStep(worker=worker, number=number, **given | futures | other)


def published(index: int) -> dict:
    return {"index": index, "tokens": [9, 10]}


def heard(queue: asyncio.Queue) -> list[tuple]:
    events = [queue.get_nowait() for _ in range(queue.qsize())]
    return [(event["type"], event.get("text") or event.get("reason")) for event in events]


def test_a_publication_goes_out_behind_the_steps_whole_text(team):
    queue = asyncio.Queue()
    team.listeners.append(queue)
    alice = step(0)
    team.begin(alice)
    team.emit_text(alice, "two")
    team.publish(alice, published(0), "Go two")
    assert heard(queue) == [("text", "two")]
    team.emit_text(alice, " of")
    alice.delivered = True
    team.flush()
    assert heard(queue) == [("text", " of"), ("published", "Go two")]


def test_events_keep_their_order_behind_one_that_waits_and_texts_do_not_wait(team):
    queue = asyncio.Queue()
    team.listeners.append(queue)
    alice, bob = step(0), step(1)
    for live in (alice, bob):
        team.begin(live)
    team.publish(alice, published(0), "Alice's")
    bob.delivered = True
    team.publish(bob, published(1), "Bob's")
    team.emit_text(alice, "last")
    assert heard(queue) == [("text", "last")]
    alice.delivered = True
    team.flush()
    assert heard(queue) == [("published", "Alice's"), ("published", "Bob's")]


def test_everything_goes_out_when_the_team_is_closed(team):
    queue = asyncio.Queue()
    team.listeners.append(queue)
    team.emit({"type": "dropped", "reason": "closed"}, after=step(0))
    team.emit({"type": "closed", "reason": "idle"})
    assert heard(queue) == []
    team.flush(everything=True)
    assert heard(queue) == [("dropped", "closed"), ("closed", "idle")]


def test_a_published_step_counts_and_hands_on_the_token_it_carries(team):
    alice = step(0)
    team.begin(alice)
    team.publish(alice, published(0), "Go two")
    team.end(alice)
    worker = team.workers[0]
    assert (worker.steps, worker.tokens, worker.live) == (1, 2, None)
    assert team.steps == [
        {"index": 0, "worker": 0, "name": "Alice", "number": 1, "tokens": 2, "text": "Go two"}
    ]


def test_a_second_live_step_is_a_conflict_and_a_reader_is_none(team):
    team.begin(step(0))
    team.begin(step(None, 1))
    team.begin(step(0, 1, reader=True, rid="reader"))
    with pytest.raises(TeamError, match="Alice already has a live step") as refused:
        team.begin(step(0, 2))
    assert refused.value.status == 409


def test_one_step_may_wait_behind_a_live_one_and_takes_its_place(team):
    first, second = step(0), step(0, 1, rid="second")
    team.begin(first)
    team.begin(second, ahead=True)
    assert second.number == 2
    with pytest.raises(TeamError, match="waiting behind its live one") as refused:
        team.begin(step(0, 1, rid="third"), ahead=True)
    assert refused.value.status == 409
    team.end(first)
    assert team.workers[0].live is second and team.workers[0].ahead is None


@pytest.mark.parametrize("ahead", [False, True])
def test_a_step_that_would_have_another_number_than_it_was_meant_to_is_refused(team, ahead):
    if ahead:
        team.begin(step(0))
    meant = 2 if ahead else 1
    with pytest.raises(TeamError, match=f"step {meant} of Alice, not 7") as refused:
        team.begin(step(0, rid="x"), ahead=ahead, number=7)
    assert (refused.value.status, refused.value.type) == (409, "not_begun")
    team.begin(step(0, rid="x"), ahead=ahead, number=meant)


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
def test_a_team_is_idle_when_it_was_not_used_for_its_idle_time(team, change, idle):
    team.last_used = 90.0
    for name, value in change.items():
        setattr(team, name, value)
    assert team.idle_since(100.0) is idle


def test_a_team_with_something_live_is_not_idle(team):
    team.last_used = 0.0
    reader = step(None)
    team.begin(reader)
    assert not team.idle_since(100.0)
    team.end(reader)
    assert team.idle_since(100.0)


@pytest.mark.parametrize("worker", [0, "Alice"])
def test_a_worker_is_known_by_number_and_by_name(team, worker):
    assert team.number_of(worker) == 0
    for unknown in (2, -1, "alice", ""):
        with pytest.raises(TeamError, match="0 Alice, 1 Bob"):
            team.number_of(unknown)
