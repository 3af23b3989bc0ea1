"""Teams on a server with two replicas of the model."""

from __future__ import annotations

from contextlib import ExitStack

import pytest

from tests.oracle.record import read_record
from tests.servers.api import Api


@pytest.fixture(scope="module")
def replicas(start_server):
    with start_server("llama", "--dp-size", "2", SGLANG_CPU_OMP_THREADS_BIND="0|1") as running:
        yield running


@pytest.fixture
def api(replicas):
    api = Api(replicas.url)
    yield api
    api.at_rest()


def opened(path) -> list[str]:
    return [line["team"] for line in read_record(path) if line["event"] == "open"]


def test_teams_are_spread_over_the_replicas_and_each_is_whole(api, replicas):
    with ExitStack() as stack:
        teams = [stack.enter_context(api.team(prompt="One and two.")) for _ in range(4)]
        steps = [api.later(team.write, who, budget=20) for team in teams for who in (0, 1)]
        ordinary = [api.later(api.generate, [9, 10, 11], 20) for _ in range(4)]
        assert len({tuple(reply.result().json()["output_ids"]) for reply in ordinary}) == 1
        assert {step.result()["step"]["number"] for step in steps} == {1}
        for team in teams:
            snapshot = team.snapshot()
            assert [step["index"] for step in snapshot["steps"]] == [0, 1]
            assert {step["name"] for step in snapshot["steps"]} == {"Alice", "Bob"}
        texts = [team.write(0, budget=9)["text"] for team in teams]
    records = [replicas.record.with_name(f"{replicas.record.name}.dp{n}") for n in (0, 1)]
    assert not replicas.record.exists() and len(texts) == 4
    assert [len(opened(record)) for record in records] == [2, 2]
    assert {name for record in records for name in opened(record)} == {t.name for t in teams}


def test_an_abort_a_hint_and_a_close_reach_the_replica_that_has_the_team(api):
    with api.team() as one, api.team() as two:
        assert api.post("/flush_cache").status_code == 400, "a team on each replica"
        for team in (one, two):
            listener, step = team.listen(), team.begin(0, budget=1500)
            assert team.abort(0).json() == {"aborted": True}
            assert step.result().status_code == 409
            assert team.say(text="Hint.").json()["step"]["index"] == 0
            assert team.close().status_code == 200
            kinds = [event["type"] for event in listener.until_closed()]
            assert kinds[0] == "snapshot" and kinds[-3:] == ["dropped", "said", "closed"], kinds
