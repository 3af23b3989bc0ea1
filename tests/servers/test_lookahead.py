"""Workers driven over HTTP lose no forward, and a run repeats whatever else the server does."""

from __future__ import annotations

import json
import random
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager

import pytest
import sglang as sgl

import hogwild_sgl as hogwild
from hogwild_sgl.bench.speed.gaps import gaps
from hogwild_sgl.lang.endpoint import Endpoint
from hogwild_sgl.transcript import Result
from runtime_patch.scheduler.lockstep import PATIENCE
from tests.servers.api import FOREVER, Api, Team, error_of, wait
from tests.servers.clients import TOKENIZER, encode, tokens
from tests.servers.test_programs import SHORT

WORKERS = ("Alice", "Bob", "Carol")
BUDGET = 90


pytestmark = pytest.mark.usefixtures("nothing_is_left")


def run(url: str, seed: int = 5, **options) -> Result:
    """A team that is checked every 40 tokens, and told what it thinks of that."""

    @sgl.function
    def program(s):
        s += sgl.user("Add one and two.")
        with hogwild.fork(s, workers=WORKERS, formatting=SHORT, seed=seed) as team:
            team.check(every=40, on_yes=lambda check, team: f"({check.number})")
            team.reason(BUDGET, step_tokens=11, temperature=0.8, **options)
            return team.result("team", "p", answer=None, final_text="")

    with Endpoint(url) as backend:
        return program.run(backend=backend).ret_value


def told(result: Result) -> list[tuple]:
    """All of a transcript but the seconds."""
    steps = [
        (s.index, s.worker, s.number, s.fed, s.text, s.start_pass, s.end_pass, s.finish)
        for s in result.steps
    ]
    return [*steps, *result.checks, result.passes, result.tokens, result.kv_tokens]


@contextmanager
def load(api: Api, clients: int) -> Iterator[None]:
    """Ordinary requests, one after the other from each client, until the block is left."""
    stop = threading.Event()

    def ask(number: int) -> None:
        draw = random.Random(number)
        while not stop.is_set():
            sampling = FOREVER | {"max_new_tokens": draw.randint(1, 30)}
            ids = tokens(draw, draw.randint(1, 60))
            reply = api.post("/generate", input_ids=ids, sampling_params=sampling)
            assert reply.status_code == 200, reply.text

    threads = [api.later(ask, number) for number in range(clients)]
    try:
        yield
    finally:
        stop.set()
        for thread in threads:
            thread.result()


def test_a_workers_steps_follow_each_other_without_a_gap(api):
    result = run(api.url)
    assert result.passes == BUDGET
    for worker in range(len(WORKERS)):
        steps = result.by_worker(worker)
        assert len(steps) >= 6
        assert steps[0].start_pass == 0 and steps[-1].end_pass == BUDGET
        assert [step.number for step in steps] == list(range(1, len(steps) + 1))
    assert set(gaps(result.steps)) == {0}
    assert result.tokens == (BUDGET,) * len(WORKERS)


def test_a_run_is_the_same_alone_again_and_amid_other_load(api):
    alone, again = run(api.url), run(api.url)
    assert told(again) == told(alone)
    assert len(alone.checks) >= 4
    other = run(api.url, seed=6)
    assert told(other) != told(alone)
    with load(api, 4), ThreadPoolExecutor(2) as pool:
        both = [pool.submit(run, api.url) for _ in range(2)]
        for one in both:
            assert told(one.result()) == told(alone)


def test_probes_do_not_disturb_a_run(api):
    with_probes = run(api.url, probes=[10, 30, 50], probe_tokens=6)
    assert len(with_probes.probes) == 3
    assert told(with_probes) == told(run(api.url))


def ahead(team: Team, worker: int, **more) -> Future:
    """A step sent behind the worker's live one; returns when it waits there."""
    step = team.api.later(team.step, worker, after_live=True, **more)
    wait(lambda: team.snapshot()["workers"][worker]["queued"], "the step to wait")
    return step


def until_it_waits(team: Team) -> int:
    """The team's forwards when they do not move any more."""
    seen = [-1]

    def rests() -> bool:
        time.sleep(0.15)
        seen.append(team.snapshot()["team_forwards"])
        return seen[-1] == seen[-2]

    wait(rests, "the team to wait")
    return seen[-1]


@pytest.mark.parametrize("rule", ["sentence", "none"])
def test_a_step_sent_ahead_is_fed_the_separator_unless_a_blank_line_stands_there(api, rule):
    (mark,) = encode(".\n\n")[-1:]
    with api.team(layout="independent") as team:
        team.begin(0, budget=400)
        sampling = {"logit_bias": {str(mark): 1000.0}}
        middle = ahead(team, 0, text="So.", budget=2, end=rule, sampling=sampling)
        wait(lambda: (team.live(0) or {"number": 2})["number"] == 2, "the first step to end")
        last = team.write(0, text="Go", after_live=True, separator="\n\n")
        before = middle.result().json()
        assert before["step"]["finish"]["type"] == ("sentence" if rule == "sentence" else "length")
        between = "" if rule == "sentence" else "\n\n"
        published = [step["text"] for step in team.snapshot()["steps"]]
        carried = TOKENIZER.decode(before["output_ids"][-1:])
        assert published[2].startswith(carried + between + "Go")
        fed = 1 + len(encode(between + "Go"))
        assert (last["step"]["number"], last["step"]["fed_tokens"]) == (3, fed)


def test_a_step_ends_at_the_forward_it_was_given_and_none_begins_there(api):
    with api.team(layout="independent") as team:
        first = team.write(0, budget=900, until_forwards=7)
        assert first["step"]["team_forwards"] == 7 and first["step"]["output_tokens"] == 7
        assert first["step"]["finish"] == {"type": "length"}
        late = error_of(team.step(0, until_forwards=7))
        assert (late["status"], late["type"]) == (409, "out_of_forwards")
        live = team.begin(0, budget=900, until_forwards=300)
        behind = ahead(team, 0, until_forwards=300)
        assert live.result().json()["step"]["team_forwards"] == 300
        assert error_of(behind.result())["type"] == "out_of_forwards"
        assert team.snapshot()["workers"][0]["steps"] == 2


def test_a_step_ahead_is_not_begun_when_its_worker_ends_its_turn_or_another_step_came(api):
    stop = encode("the")[-1:]
    with api.team(layout="independent") as team:
        sampling = {"logit_bias": {str(stop[0]): 1000.0}, "stop_token_ids": stop}
        sampling["ignore_eos"] = False
        live = team.begin(1, budget=400)
        ending = ahead(team, 1, budget=5, sampling=sampling)
        wait(lambda: live.done(), "the first step to end")
        after = error_of(team.step(1, after_live=True, number=3))
        assert after["type"] == "not_begun" and after["status"] == 409
        assert ending.result().json()["step"]["finish"]["type"] == "eos"
        assert error_of(team.step(1, number=2))["type"] == "not_begun"
        assert team.write(1, number=3)["step"]["number"] == 3


def test_a_stream_that_waits_is_kept_alive_and_a_refusal_comes_in_it(api):
    with api.team(layout="independent") as team:
        team.begin(0, budget=1900)
        lines = []

        def listen() -> None:
            body = {"worker": 0, "text": "Go", "stream": True, "after_live": True}
            with api.http.stream("POST", f"{team.path}/steps", json=body) as response:
                assert response.status_code == 200
                lines.extend(response.iter_lines())

        waiting = api.later(listen)
        wait(lambda: team.snapshot()["workers"][0]["queued"], "the step to wait")
        time.sleep(1.2)
        assert team.abort(0).json() == {"aborted": True}
        waiting.result()
    assert ": waiting" in lines
    (event,) = [json.loads(line[6:]) for line in lines if line.startswith("data: {")]
    assert event["type"] == "error" and event["error"]["type"] == "not_begun"


def test_in_lockstep_a_team_waits_for_a_worker_while_others_are_served(api):
    penalty = {"frequency_penalty": 0.4, "presence_penalty": 0.2}

    def write(late: float) -> tuple[list[str], list[int]]:
        with api.team(workers=WORKERS) as team:
            assert api.post(f"{team.path}/lockstep", workers=["Alice", 1]).json() == {
                "lockstep": ["Alice", "Bob"]
            }
            bob = api.later(team.step, 1, "Bob:", 40, until_forwards=40, sampling=penalty)
            alice = [team.write(0, "One:", 9, until_forwards=40)] if not late else []
            if late:
                wait(lambda: team.live(1), "Bob's step")
                time.sleep(late)
                assert team.snapshot()["team_forwards"] == 0
                alice.append(team.write(0, "One:", 9, until_forwards=40))
                assert until_it_waits(team) == 9
                assert api.generate([9, 10, 11], 6).status_code == 200
                assert team.snapshot()["team_forwards"] == 9 and not bob.done()
            alice.append(team.write(0, "Two:", 40, until_forwards=40))
            replies = [*alice, bob.result().json()]
            spans = [r["step"]["team_forwards"] for r in replies]
            return [reply["text"] for reply in replies], spans

    with load(api, 2):
        slow = write(late=0.4)
    assert slow == write(late=0)
    assert slow[1] == [9, 40, 40]


def test_a_team_in_lockstep_goes_on_without_a_worker_that_does_not_come(api):
    with api.team() as team:
        api.post(f"{team.path}/lockstep", workers=[0, 1])
        begun = time.monotonic()
        assert team.write(0, budget=5)["step"]["team_forwards"] == 5
        assert PATIENCE < time.monotonic() - begun < PATIENCE + 10
        assert team.write(0, budget=5)["step"]["team_forwards"] == 10


def test_a_step_that_is_aborted_while_the_team_waits_ends_at_once(api):
    with api.team(workers=WORKERS) as team:
        api.post(f"{team.path}/lockstep", workers=[0, 1])
        bob = api.later(team.step, 1, budget=400)
        team.write(0, budget=9)
        assert until_it_waits(team) == 9
        assert team.abort(1).json() == {"aborted": True}
        assert bob.result().status_code == 409 and team.snapshot()["team_forwards"] == 9
        assert api.post(f"{team.path}/lockstep", workers=[]).json() == {"lockstep": []}
        assert team.write(1, budget=3)["step"]["number"] == 1
