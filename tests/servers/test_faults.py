"""What may go wrong while teams are at work: the pool runs full, requests are aborted,
clients go away. Those concerned get an error, the others go on, and nothing stays behind."""

from __future__ import annotations

import os
import signal
import time
from concurrent.futures import Future

import httpx
import psutil
import pytest

from hogwild_sgl.client.client import Client
from hogwild_sgl.errors import ServerGone
from hogwild_sgl.launch.server_process import ServerProcess
from tests.conftest import assert_no_leak
from tests.oracle.agreement import Sampled, compare
from tests.oracle.decoder import Decoder
from tests.oracle.record import read_record, replay_record
from tests.oracle.tiny_tokenizer import EOS
from tests.servers.api import FOREVER, Api, Team, error_of, wait

POOL, CONTEXT, CHUNK = 8000, 9000, 64
# More than is written before somebody acts, however slow the machine is just now. Only a
# worker that reads nobody has the room.
LONG = 6000
ALONE = {"layout": "independent"}
# SGLang overcommits its pool only for requests that may end early. These will not.
UNBOUND = {"ignore_eos": False, "logit_bias": {str(EOS): -100.0}}


@pytest.fixture(scope="module")
def running(start_server):
    """A pool that the scheduler overcommits, room for long steps, small prefill chunks, and
    a check of every page after every forward."""
    args = ("--max-total-tokens", str(POOL), "--chunked-prefill-size", str(CHUNK))
    args += ("--schedule-conservativeness", "0.1", "--context-length", str(CONTEXT))
    args += ("--json-model-override-args", f'{{"max_position_embeddings": {CONTEXT}}}')
    checks = {"SGLANG_CHECK_KV_PAGE_INVARIANTS": "1"}
    with start_server("llama", *args, **checks) as running:
        yield running


@pytest.fixture(scope="module")
def api(running) -> Api:
    return Api(running.url)


@pytest.fixture(autouse=True)
def nothing_is_left(api, running):
    yield
    if running.process.returncode is None:
        api.at_rest()


@pytest.fixture
def nearly_full(api):
    """An open team that leaves 900 slots free."""
    with api.team(input_ids=[9] * (POOL - 900)) as team:
        yield team


def test_a_prompt_that_the_pool_has_no_room_for_is_refused_and_the_others_go_on(api, nearly_full):
    reply = api.try_open(input_ids=[10] * 950)
    assert reply.status_code == 503
    message = error_of(reply)["message"]
    assert f"pool of {POOL} tokens" in message and "950 tokens" in message
    assert "--max-total-tokens" in message
    with api.team(input_ids=[10] * 50) as smaller:
        assert smaller.write(0)["step"]["number"] == nearly_full.write(0)["step"]["number"] == 1


def test_a_text_longer_than_the_whole_pool_is_refused_at_once(api):
    with api.team() as team:
        for reply in (
            api.try_open(input_ids=[9] * (POOL + 100)),
            team.step(0, input_ids=[9] * (POOL + 100)),
            team.say(input_ids=[9] * (POOL + 100)),
        ):
            assert reply.status_code == 503
            assert (
                f"{POOL + 100} tokens, but the KV pool holds {POOL}" in error_of(reply)["message"]
            )


def test_a_step_too_big_for_what_is_free_is_refused_and_the_one_behind_it_is_written(
    api, nearly_full
):
    with api.team() as two, api.team() as three:
        busy = nearly_full.begin(0, budget=400)
        big = api.later(two.step, 0, budget=890)
        wait(lambda: two.live(0), "the big step")
        small = three.step(0, budget=5)
        assert busy.result().status_code == 200 and small.status_code == 200
        assert big.result().status_code == 503
        assert "may write 890" in error_of(big.result())["message"]
        assert two.write(0)["step"]["number"] == 1


def test_an_ordinary_request_that_has_to_wait_for_a_team_does_not_hold_up_the_team(
    api, nearly_full
):
    ordinary = api.later(api.generate, [10] * 950, 5)
    wait(lambda: api.loads()[0]["num_waiting_reqs"] == 1, "the ordinary request to wait")
    assert nearly_full.write(0, budget=20)["step"]["output_tokens"] == 20
    assert not ordinary.done()
    nearly_full.close()
    assert len(ordinary.result().json()["output_ids"]) == 5


def test_when_the_pool_runs_full_one_step_ends_with_an_error_and_the_others_go_on(api, nearly_full):
    with api.team(**ALONE) as team:
        steps = [api.later(team.step, who, budget=600, sampling=UNBOUND) for who in (0, 1)]
        wait(lambda: team.live(0) and team.live(1), "both steps")
        written = nearly_full.write(0, budget=30)
        statuses = [step.result().status_code for step in steps]
        assert sorted(statuses) == [200, 503] and written["step"]["output_tokens"] == 30
        refused = steps[statuses.index(503)].result()
        message = error_of(refused)["message"]
        assert f"pool of {POOL} tokens ran out while" in message
        assert len(team.snapshot()["steps"]) == 1
        assert team.write(statuses.index(503))["step"]["number"] == 1


def test_a_step_for_which_the_pool_runs_full_by_itself_ends_with_the_same_error(api, nearly_full):
    with api.team(**ALONE) as team:
        step = team.begin(0, budget=850, sampling=UNBOUND)
        assert team.say(input_ids=[9] * 300).status_code == 200
        assert step.result().status_code == 503
        assert f"pool of {POOL} tokens ran out while" in error_of(step.result())["message"]
        assert [step["worker"] for step in team.snapshot()["steps"]] == [None]


def test_a_flush_is_refused_while_a_team_is_open_and_does_it_no_harm(api):
    with api.team(prompt="One and two.") as team:
        undisturbed = [team.write(0, budget=9), team.write(1, budget=9)]
    with api.team(prompt="One and two.") as team:
        first = team.write(0, budget=9)
        assert api.post("/flush_cache").status_code == 400
        second = team.write(1, budget=9)
        assert [first["text"], second["text"]] == [step["text"] for step in undisturbed]
        assert team.snapshot()["history_tokens"] == second["step"]["history_published"] + 10


def test_abort_request_by_its_id_drops_one_step_and_leaves_the_other(api):
    with api.team(**ALONE) as team:
        dropped, other = team.begin(0, budget=LONG), team.begin(1, budget=600)
        assert api.post("/abort_request", rid=team.live(0)["rid"]).status_code == 200
        assert dropped.result().status_code == 409
        assert error_of(dropped.result())["type"] == "aborted"
        assert other.result().json()["step"]["output_tokens"] == 600
        assert [step["name"] for step in team.snapshot()["steps"]] == ["Bob"]
        assert team.write(0)["step"]["number"] == 1


def test_abort_all_ends_every_step_and_leaves_the_teams_open(api):
    with api.team(**ALONE) as one, api.team(**ALONE) as two:
        work = [(one, 0), (one, 1), (two, 0)]
        steps = [team.begin(who, budget=LONG, sampling=UNBOUND) for team, who in work]
        ordinary = api.later(api.generate, [9, 10], 1000)
        wait(lambda: api.loads()[0]["num_running_reqs"] == 4, "four requests to run")
        assert api.post("/abort_request", abort_all=True).status_code == 200
        assert [step.result().status_code for step in steps] == [409] * 3
        assert ordinary.result().json()["meta_info"]["finish_reason"]["type"] == "abort"
        for team in (one, two):
            assert team.snapshot()["steps"] == [] and team.write(0)["step"]["number"] == 1


def test_abort_all_while_a_team_is_being_opened_fails_the_opening(api):
    opening = api.later(api.try_open, input_ids=[9] * LONG)
    while not opening.done():
        api.post("/abort_request", abort_all=True)
    assert opening.result().status_code == 409
    assert error_of(opening.result())["type"] == "aborted"


def test_new_weights_close_the_teams_that_were_computed_with_the_old_ones(api, running):
    def update(**more) -> bool:
        """SGLang says no when it has not yet put the last step away, and may be asked again."""
        body = {"model_path": str(running.model), **more}
        return api.post("/update_weights_from_disk", **body).json()["success"]

    with api.team() as before, api.team(**ALONE) as busy:
        text = before.write(0, budget=9)["text"]
        listener, step = busy.listen(), busy.begin(0, budget=LONG)
        wait(lambda: update(abort_all_requests=True), "new weights")
        assert listener.until_closed()[-1]["reason"] == "weights"
        assert step.result().status_code in (409, 410)
        for team in (before, busy):
            assert "(weights)" in error_of(team.step(0))["message"]
    with api.team() as after:
        assert after.write(0, budget=9)["text"] == text
        wait(update, "new weights")


def test_texts_longer_than_the_prefill_chunk_are_read_as_they_are_defined(api, running):
    long = [[5 + (7 * i + start) % 250 for i in range(3 * CHUNK)] for start in range(3)]
    with api.team(input_ids=long[0]) as team:
        beside = api.later(team.step, 1, budget=100, input_ids=[9])
        first = team.write(0, budget=12, input_ids=long[1])
        assert team.say(input_ids=long[2]).status_code == 200
        second = team.write(0, budget=12, input_ids=[10])
        replies = (first, second, beside.result().json())
    fed = (long[1], [first["output_ids"][-1], 10], [9])
    requests = {
        reply["meta_info"]["id"]: Sampled(tokens, reply["output_ids"])
        for tokens, reply in zip(fed, replies, strict=True)
    }
    predictions = replay_record(lines_of(team, running), Decoder.load(running.model), {})
    agreement = compare(predictions, requests)
    assert agreement.wrong == [] and agreement.equal + len(agreement.ties) == 12 + 12 + 100


def lines_of(team: Team, running) -> list[dict]:
    """The team's part of the server's record."""
    lines = []
    for line in read_record(running.record):
        if line["event"] == "forward":
            line["rows"] = [row for row in line["rows"] if row["team"] == team.name]
        if line.get("rows") or line.get("team") == team.name:
            lines.append(line)
    return lines


def test_a_worker_is_no_longer_seen_from_the_forward_after_its_abort(api, running):
    with api.team() as team:
        going_on, aborted = team.begin(0, budget=LONG // 2), team.begin(1, budget=LONG // 2)
        wait(lambda: len(team.live(1)["text"]) > 5, "some text")
        assert team.abort(1).json() == {"aborted": True}
        assert aborted.result().status_code == 409 and not going_on.done()
        length = len(team.live(0)["text"])
        wait(lambda: len(team.live(0)["text"]) > length, "more text")
        lines = lines_of(team, running)
    rid = next(line["rid"] for line in lines if line["event"] == "doom")
    doomed = next(i for i, line in enumerate(lines) if line["event"] == "doom")
    before = {row["worker"]: row for row in lines[doomed - 1]["rows"]}
    after = {row["worker"]: row for row in lines[doomed + 1]["rows"]}
    assert before[1]["rid"] == rid and after[0]["position"] == before[0]["position"] + 1
    seen = before[1]["position"] + 1
    assert seen > 2 and after[0]["view"] == before[0]["view"] + 1 - seen


@pytest.mark.parametrize("streamed", [False, True])
def test_a_client_that_goes_away_in_a_step_leaves_nothing_of_it(api, streamed):
    with api.team() as team:
        team.write(0)
        before = team.snapshot()
        if streamed:
            with team.streamed(0, budget=LONG) as messages:
                for _ in range(5):
                    next(messages)
        else:
            leave_in_the_middle(team, 0)
        team.wait_until_free(0)
        after = team.snapshot()
        for kept in ("steps", "history_tokens", "kv_tokens"):
            assert after[kept] == before[kept]
        assert team.write(0)["step"]["number"] == 2


def leave_in_the_middle(team: Team, worker: int, **more) -> None:
    body = {"worker": worker, "text": "Go", "end": "none", **more}
    body["sampling_params"] = {"max_new_tokens": LONG, "ignore_eos": True}
    team.api.abandon(f"{team.path}/steps", 0.3, **body)


@pytest.mark.parametrize("streamed", [False, True])
def test_a_client_that_goes_away_while_its_step_waits_frees_the_worker_at_once(api, streamed):
    with api.team(**ALONE) as busy, api.team() as waiting:
        step = busy.begin(0, budget=LONG)
        leave_in_the_middle(waiting, 0, stream=streamed)
        waiting.wait_until_free(0)
        assert not step.done() and waiting.snapshot()["team_forwards"] == 0
        assert busy.abort(0).json() == {"aborted": True}


def queue_behind(team: Team, worker: int) -> Future:
    """A step that waits behind the worker's live one."""
    step = team.api.later(team.step, worker, text="Then", budget=4, after_live=True)
    wait(lambda: queued(team, worker), "the step to wait behind the live one")
    return step


def queued(team: Team, worker: int) -> str | None:
    return team.snapshot()["workers"][worker]["queued"]


@pytest.mark.parametrize("end", ["abort", "close", "abort_all"])
def test_a_step_that_waits_behind_a_live_one_ends_with_it(api, end):
    with api.team(**ALONE) as team:
        live = team.begin(0, budget=LONG)
        waiting = queue_behind(team, 0)
        if end == "abort":
            assert team.abort(0).json() == {"aborted": True}
        elif end == "close":
            assert team.close().status_code == 200
        else:
            assert api.post("/abort_request", abort_all=True).status_code == 200
        for step in (live, waiting):
            assert step.result().status_code in ((409, 410) if end == "close" else (409,))
        if end != "close":
            assert team.write(0)["step"]["number"] == 1


def test_a_client_that_goes_away_while_its_step_waits_behind_a_live_one_gives_its_place_back(api):
    with api.team(**ALONE) as team:
        live = team.begin(0, budget=LONG)
        leave_in_the_middle(team, 0, after_live=True)
        wait(lambda: not queued(team, 0), "the place behind the live step to be free")
        again = queue_behind(team, 0)
        assert not live.done() and team.abort(0).json() == {"aborted": True}
        assert live.result().status_code == again.result().status_code == 409


def test_a_client_that_goes_away_while_it_opens_a_team_leaves_no_team(api):
    for token, seconds in ((9, 0.0), (10, 0.01), (11, 0.1)):
        api.abandon("/hogwild/teams", seconds, input_ids=[token] * LONG)
    wait(lambda: api.get("/hogwild").json()["teams"] == 0, "the teams to be gone")


def test_many_teams_and_faults_at_once_leave_nothing(api):
    def work(number: int) -> None:
        with api.team(prompt=f"Team {number}", layout=LAYOUTS[number % 4]) as team:
            steps = [api.later(team.step, worker, budget=40 + 9 * number) for worker in (0, 1)]
            time.sleep(0.05 * number)
            if number % 3 == 0:
                team.abort(0)
            elif number % 3 == 1:
                team.close()
            for step in steps:
                assert step.result().status_code in (200, 409, 410, 503), step.result().text

    for team in [api.later(work, number) for number in range(6)]:
        team.result()


LAYOUTS = ("combined", "interleaved", "contiguous", "independent")


def test_a_killed_server_gives_its_clients_an_error_and_starts_again(api, running):
    """The last one: it leaves no server."""
    process = running.process
    family = psutil.Process(process.pid).children(recursive=True)
    team = Team(api, api.try_open(**ALONE).json())
    listener = team.listen()
    with Client(running.url) as client:
        mine = client.open(prompt="Add.", workers=["Alice", "Bob"])
        steps = [
            team.begin(0, budget=LONG),
            api.later(mine.step, 0, "Go", FOREVER | {"max_new_tokens": LONG}, end="none"),
            api.later(api.generate, [9, 10], 1500),
        ]
        wait(lambda: mine.snapshot().workers[0].live, "the second step")
        os.kill(process.pid, signal.SIGKILL)
        gone = (httpx.TransportError, ServerGone, httpx.TransportError)
        for step, error in zip(steps, gone, strict=True):
            assert isinstance(step.exception(timeout=20), error)
        with pytest.raises(ServerGone):
            client.info()
        assert "closed" not in [event["type"] for event in listener.until_closed()]
        assert psutil.wait_procs(family, timeout=30)[1] == []
        again = {"args": process.args, "env": process.env, "port": process.port}
        log = running.record.parent / "again.log"
        with ServerProcess(running.model, **again, log_path=log):
            assert api.get(team.path).status_code == 404
            with client.open(prompt="Add.", workers=["Alice", "Bob"]) as new:
                assert new.step(0, "Go", {"max_new_tokens": 4}, end="none").step.number == 1
            api.at_rest()
    assert_no_leak(log)
