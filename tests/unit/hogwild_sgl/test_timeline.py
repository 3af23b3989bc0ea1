"""What happened, in the order in which it happened."""

from __future__ import annotations

import random

import pytest

from hogwild_sgl.driver.timeline import LOST, PUBLISHED, STARTED, Timeline


def taken(time: Timeline) -> list[tuple[int, int, int]]:
    found = []
    while (what := time.next()) is not None:
        found.append((what.passes, what.kind, what.worker))
    return found


def test_a_publication_waits_until_all_others_have_been_heard_up_to_there():
    time = Timeline(0, [0, 0])
    time.started(0, 0)
    time.started(1, 0)
    assert taken(time) == [(0, STARTED, 0), (0, STARTED, 1)]
    time.published(0, 3, "Alice's", last=False)
    time.progressed(1, "a b c", 3)
    assert taken(time) == [], "Bob's third token may have been his last"
    time.progressed(1, " d", 1)
    assert taken(time) == [(3, PUBLISHED, 0)]


def test_at_one_forward_publications_come_first_and_then_workers_in_order():
    time = Timeline(0, [0, 0])
    for worker in (1, 0):
        time.started(worker, 0)
        time.published(worker, 4, None, last=False)
        time.started(worker, 4)
    assert taken(time)[2:] == [
        *((4, PUBLISHED, 0), (4, PUBLISHED, 1)),
        *((4, STARTED, 0), (4, STARTED, 1)),
    ]


def test_nobody_waits_for_a_worker_that_writes_no_more():
    time = Timeline(0, [0, 0])
    time.started(0, 0)
    time.published(0, 2, None, last=True)
    time.started(1, 0)
    time.published(1, 9, None, last=False)
    assert taken(time)[-1] == (9, PUBLISHED, 1)


def test_a_dropped_step_is_known_at_once_and_what_was_heard_before_comes_first():
    time = Timeline(0, [0, 0])
    time.started(0, 0)
    time.started(1, 0)
    time.published(0, 5, None, last=False)
    time.progressed(1, "x", 5)
    time.dropped(1, None)
    assert taken(time)[2:] == [(5, PUBLISHED, 0), (5, LOST, 1)]


def test_a_refused_step_is_lost_where_its_workers_last_one_ended():
    time = Timeline(0, [0, 0])
    time.started(0, 0)
    time.published(0, 5, None, last=False)
    time.not_begun(0, "refused", last=True)
    time.started(1, 0)
    time.progressed(1, "x", 6)
    assert taken(time)[2:] == [(5, PUBLISHED, 0), (5, LOST, 0)]


@pytest.mark.parametrize("seed", range(5))
def test_the_order_does_not_depend_on_how_the_workers_messages_interleave(seed):
    def run(draw: random.Random) -> list[tuple[int, int, int]]:
        time = Timeline(0, [0, 0, 0])
        scripts = [[(0, n), (n, n + 3), (n + 3, n + 10)] for n in (4, 2, 6)]
        calls = []
        for worker, spans in enumerate(scripts):
            own = []
            for start, end in spans:
                own.append(lambda w=worker, s=start: time.started(w, s))
                own += [lambda w=worker: time.progressed(w, "x", 1)] * (end - start)
                last = (start, end) == spans[-1]
                own.append(lambda w=worker, e=end, last=last: time.published(w, e, None, last=last))
            calls.append(own)
        found = []
        while any(calls):
            draw.choice([own for own in calls if own]).pop(0)()
            found += taken(time)
        return found

    order, other = run(random.Random(seed)), run(random.Random(seed + 100))
    # Steps that begin at the same forward may come in any order: none bears on another.
    assert [what[:2] for what in order] == sorted(what[:2] for what in order)
    assert sorted(order) == sorted(other) and len(order) == 18
    ends = [what for what in order if what[1] == PUBLISHED]
    assert ends == sorted(ends) == [what for what in other if what[1] == PUBLISHED]
