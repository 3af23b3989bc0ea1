"""Layouts and readers' views, segment by segment, against the definition in words."""

from __future__ import annotations

from dataclasses import dataclass
from types import SimpleNamespace

import pytest
import torch

from runtime_patch.attention.layouts import LAYOUTS, UnknownLayout, find_layout, layout
from runtime_patch.attention.views import Run, Segment
from runtime_patch.scheduler.team import PublishedStep, StoredPart, Team
from runtime_patch.scheduler.team_views import TeamViews
from runtime_patch.team_request import Kind


@dataclass
class LiveRequest:
    """A live request as team_views.py sees it."""

    rid: str
    kind: Kind = Kind.STEP
    worker: int | None = None
    aborting: bool = False


def slots(*numbers: int) -> torch.Tensor:
    return torch.tensor(numbers, dtype=torch.int64)


def state(layout_name: str, workers: int = 3) -> tuple[TeamViews, dict[int | str, LiveRequest]]:
    """Slots 1-2 prompt, 3 and 4 headers, 10.. published by 1, 0, nobody, 1; 50.. live."""
    team = Team("t", workers, layout_name, headers_after_prompt=False)
    for kind, numbers in (
        (Kind.PROMPT, (1, 2)),
        (Kind.HEADER_OTHERS, (3,)),
        (Kind.HEADER_OWN, (4,)),
    ):
        team.parts[kind] = StoredPart(Segment(("t", kind), slots(*numbers), 0), [], None, None)
    for index, worker in enumerate((1, 0, None, 1)):
        segment = Segment(("t", index), slots(10 + 2 * index, 11 + 2 * index), 0)
        team.published.append(PublishedStep(index, worker, [], segment, None))
    live = {worker: LiveRequest(f"live {worker}", worker=worker) for worker in range(workers)}
    written = {}
    for worker, writing in live.items():
        team.add(writing)
        written[writing.rid] = slots(50 + 10 * worker, 51 + 10 * worker)
    return TeamViews(team, written), live


def view(state: TeamViews, writer: LiveRequest) -> list[int]:
    return [slot for part in state.view(writer) if len(part) for slot in part.slots.tolist()]


PROMPT, OTHERS, OWN = [1, 2], [3], [4]
FIRST, SECOND, HINT, FOURTH = [10, 11], [12, 13], [14, 15], [16, 17]
ALICE, BOB, CAROL = [50, 51], [60, 61], [70, 71]
HISTORY = PROMPT + FIRST + SECOND + HINT + FOURTH


@pytest.mark.parametrize(
    ("name", "worker", "expected"),
    [
        ("combined", 0, HISTORY + OTHERS + BOB + CAROL + OWN + ALICE),
        ("combined", 1, HISTORY + OTHERS + ALICE + CAROL + OWN + BOB),
        ("combined", 2, HISTORY + OTHERS + ALICE + BOB + OWN + CAROL),
        ("interleaved", 1, HISTORY + OWN + BOB),
        ("independent", 1, PROMPT + FIRST + HINT + FOURTH + BOB),
        ("independent", 2, PROMPT + HINT + CAROL),
        (
            "contiguous",
            0,
            PROMPT + HINT + OTHERS + FIRST + FOURTH + BOB + CAROL + OWN + SECOND + ALICE,
        ),
        (
            "contiguous",
            1,
            PROMPT + HINT + OTHERS + SECOND + ALICE + CAROL + OWN + FIRST + FOURTH + BOB,
        ),
    ],
)
def test_each_layout_puts_the_segments_in_the_order_of_its_definition(name, worker, expected):
    team, live = state(name)
    assert view(team, live[worker]) == expected


@pytest.mark.parametrize("name", LAYOUTS)
def test_a_reader_sees_everything_in_every_layout_and_nobody_sees_it(name):
    team, live = state(name)
    before = {worker: view(team, writing) for worker, writing in live.items()}
    reader = LiveRequest("reader", Kind.READER)
    team.team.add(reader)
    team.written["reader"] = slots(90)
    assert view(team, reader) == HISTORY + OTHERS + ALICE + BOB + CAROL + OWN + [90]
    assert {worker: view(team, writing) for worker, writing in live.items()} == before


@pytest.mark.parametrize("name", LAYOUTS)
def test_a_reader_in_a_workers_place_sees_what_the_worker_sees_without_its_live_step(name):
    team, live = state(name)
    reader = LiveRequest("reader", Kind.READER, worker=1)
    team.team.add(reader)
    team.written["reader"] = slots(90)
    assert view(team, reader) == [s for s in view(team, live[1]) if s not in BOB] + [90]


@pytest.mark.parametrize("name", LAYOUTS)
def test_a_run_of_published_steps_is_kept_until_another_is_published(name):
    team, live = state(name)

    def runs() -> list[Run]:
        return [part for part in team.view(live[0]) if isinstance(part, Run)]

    before = runs()
    assert before and all(a is b for a, b in zip(before, runs(), strict=True))
    segment = Segment(("t", 4), slots(18, 19), 0)
    team.team.published.append(PublishedStep(4, 0, [], segment, None))
    assert sum(map(len, runs())) == sum(map(len, before)) + 2


def test_a_voice_from_outside_is_written_where_it_will_stand():
    team, _ = state("combined")
    voice = LiveRequest("voice", Kind.SAY)
    team.written["voice"] = slots(90)
    assert view(team, voice) == HISTORY + [90]


def test_a_aborting_step_is_hidden_from_the_others_but_not_from_itself():
    team, live = state("combined")
    live[1].aborting = True
    assert view(team, live[0]) == HISTORY + OTHERS + CAROL + OWN + ALICE
    assert view(team, live[1]) == HISTORY + OTHERS + ALICE + CAROL + OWN + BOB


def test_a_worker_without_a_live_step_takes_no_room_in_the_others_views():
    team, live = state("combined")
    team.team.remove(live[2])
    assert view(team, live[0]) == HISTORY + OTHERS + BOB + OWN + ALICE


def test_a_layout_can_be_added_under_a_new_name_only():
    @layout("only the prompt")
    def only_the_prompt(state, worker):
        return [state.prompt]

    try:
        team, live = state("only the prompt")
        assert view(team, live[1]) == PROMPT + BOB
        with pytest.raises(ValueError, match="'only the prompt' is already registered"):
            layout("only the prompt")(only_the_prompt)
    finally:
        del LAYOUTS["only the prompt"]


def test_an_unknown_layout_is_refused_with_the_known_ones():
    with pytest.raises(UnknownLayout, match="'spiral'; known layouts: combined, interleaved, "):
        find_layout("spiral")


@pytest.mark.parametrize("workers", [-1, 0, 1, 17])
def test_a_team_has_2_to_16_workers(workers):
    with pytest.raises(ValueError, match=f"2 to 16 workers, got {workers}"):
        Team("t", workers, "combined", headers_after_prompt=False)


def test_a_worker_has_one_live_step_and_one_ahead():
    team, live = state("combined")
    with pytest.raises(ValueError, match="worker 1 of team t has a live step already"):
        team.team.add(LiveRequest("another", worker=1))
    team.team.add_ahead(LiveRequest("next", worker=1))
    with pytest.raises(ValueError, match="worker 1 of team t has a step ahead already"):
        team.team.add_ahead(LiveRequest("third", worker=1))
    assert view(team, live[0]) == HISTORY + OTHERS + BOB + CAROL + OWN + ALICE


def test_a_team_is_idle_when_nobody_writes_reads_or_waits():
    team = state("combined")[0].team
    waiting = LiveRequest("next", worker=1)
    team.add_ahead(waiting)
    reader = LiveRequest("reader", Kind.READER)
    team.add(reader)
    for writer in team.writers():
        assert not team.idle
        team.remove(writer)
    assert team.idle and team.writers() == []


def test_the_history_is_the_prompt_and_what_was_published():
    team = Team("t", 2, "combined", headers_after_prompt=False)
    assert team.history_tokens == 0
    prompt = SimpleNamespace(node="prompt node", tokens=[1, 2, 3])
    team.parts[Kind.PROMPT] = prompt
    assert team.history_tokens == 3 and team.tip == "prompt node"
    segment = Segment(("t", 0), slots(8, 9), 0)
    team.published.append(PublishedStep(0, 1, [4, 5], segment, "step node"))
    assert team.history_tokens == 5 and team.tip == "step node"
