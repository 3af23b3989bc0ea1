"""Hostile and unlucky clients: the server refuses in words, keeps serving, and keeps nothing."""

from __future__ import annotations

import json
import re

import pytest

from tests.servers.api import Api, error_of, wait

pytestmark = pytest.mark.usefixtures("nothing_is_left")


def raw(api: Api, path: str, body: bytes):
    return api.http.post(path, content=body, headers={"content-type": "application/json"})


@pytest.mark.parametrize(
    "body",
    [
        {"prompt": "\ud800"},
        {"prompt": "a", "workers": ["A", "\udc00"]},
        {"prompt": "a", "formatting": {"header_own": "x\udfff"}},
        {"messages": [{"role": "user", "content": "\ud800"}]},
    ],
    ids=str,
)
def test_half_a_character_in_any_text_of_a_team_is_refused(api, body):
    reply = raw(api, "/hogwild/teams", json.dumps(body).encode())
    assert reply.status_code == 400 and "surrogate" in error_of(reply)["message"]


def test_half_a_character_in_a_step_or_say_is_refused_and_the_worker_stays_free(api):
    with api.team() as team:
        body = json.dumps({"worker": 0, "text": "\ud800"}).encode()
        for route in ("steps", "say"):
            reply = raw(api, f"{team.path}/{route}", body)
            assert reply.status_code == 400 and "surrogate" in error_of(reply)["message"]
        assert team.write(0)["step"]["number"] == 1


@pytest.mark.parametrize(
    "body",
    [b'{"prompt": "a", "seed": ' + b"9" * 6000 + b"}", b"[" * 100_000, b'{"prompt": "\xff"}'],
    ids=["digits", "depth", "encoding"],
)
def test_a_body_that_the_parser_gives_up_on_has_the_usual_error_reply(api, body):
    reply = raw(api, "/hogwild/teams", body)
    assert reply.status_code == 400 and "body" in error_of(reply)["message"]


@pytest.mark.parametrize(
    ("sampling", "named"),
    [
        ({"top_k": 2**31}, "top_k"),
        ({"top_k": 2**62}, "top_k"),
        ({"logit_bias": {"5": float("nan")}}, "logit_bias"),
        ({"logit_bias": {"5": float("inf")}}, "logit_bias"),
        ({"logit_bias": {"5": 1e300}}, "logit_bias"),
    ],
    ids=str,
)
def test_numbers_that_would_end_the_scheduler_or_spoil_its_logits_are_refused(api, sampling, named):
    with api.team() as team:
        body = {"worker": 0, "text": "Go", "sampling_params": {"temperature": 1, **sampling}}
        reply = raw(api, f"{team.path}/steps", json.dumps(body).encode())
        assert reply.status_code == 400 and named in error_of(reply)["message"]
        assert team.write(0, sampling={"temperature": 1, "top_k": 2**30})["step"]["number"] == 1


@pytest.mark.parametrize("kind", ["prompt", "header_own", "step", "say", "reader"])
@pytest.mark.parametrize("key", [{}, {"key": "guessed"}], ids=["no-key", "wrong-key"])
def test_an_ordinary_request_cannot_write_into_somebodys_team(api, kind, key):
    with api.team() as team:
        before = team.snapshot()
        purpose = {"kind": kind, "team": team.name, "worker": 1 if kind == "step" else None} | key
        sampling = {"max_new_tokens": 1, "custom_params": {"hogwild": purpose}}
        reply = api.post("/generate", input_ids=[9, 9, 9], sampling_params=sampling)
        assert reply.status_code == 400 and "belongs to the /hogwild routes" in reply.text
        assert team.snapshot() == before
        assert team.write(1)["step"]["index"] == 0


def test_a_step_behind_a_live_one_has_the_logprobs_of_any_other(api):
    fed = []
    for after_live in (False, True):
        with api.team() as team:
            live = team.begin(0, budget=600)
            if not after_live:
                live.result()
            step = team.step(0, after_live=after_live, return_logprob=True).json()
            assert live.result().status_code == 200
            fed.append(step["step"]["fed_tokens"])
            assert step["meta_info"]["input_token_logprobs"] == []
            assert len(step["meta_info"]["output_token_logprobs"]) == 4
    assert fed[0] == fed[1]


@pytest.mark.parametrize("dropped_by", ["abort", "abort_request", "close"])
def test_a_step_behind_one_that_is_dropped_is_never_published(api, dropped_by):
    with api.team(layout="independent") as team:
        live = team.begin(0, budget=1500)
        rid = team.live(0)["rid"]
        behind = api.later(team.step, 0, after_live=True)
        if dropped_by == "abort":
            team.abort(0)
        elif dropped_by == "close":
            team.close()
        else:
            assert api.post("/abort_request", rid=rid).status_code == 200
        assert live.result().status_code == 409
        status, closed = behind.result().status_code, dropped_by == "close"
        # It may also have been asked for when the worker was free again: then it is a first step.
        assert status in ((409, 410) if closed else (200, 409))
        if not closed:
            numbers = [step["number"] for step in team.snapshot()["steps"]]
            assert numbers == ([1] if status == 200 else [])
            assert team.write(0)["step"]["number"] == len(numbers) + 1


def test_grammars_that_compile_while_the_worker_is_busy_aborted_or_closed_leave_nothing(api):
    def grammar(size: int) -> dict:
        parts = "|".join(f"[a-z]{{{i},{i + size}}}[0-9]{{1,{i + 30}}}" for i in range(1, 12))
        return {"regex": f"({parts})", "ignore_eos": False}

    with api.team(layout="independent") as team:
        live = team.begin(0, budget=500)
        behind = team.step(0, after_live=True, budget=40, sampling=grammar(9)).json()
        assert live.result().status_code == 200 and behind["step"]["number"] == 2
        assert re.fullmatch("[a-z]+[0-9]*", behind["text"])
        compiling = api.later(team.step, 1, sampling=grammar(10))
        wait(lambda: team.live(1), "the step to be under way")
        team.abort(1)
        assert compiling.result().status_code in (200, 400, 409)
        live = team.begin(0, budget=1200)
        behind = api.later(team.step, 0, after_live=True, sampling=grammar(11))
        team.close()
        assert live.result().status_code == 409 and behind.result().status_code in (409, 410)


def test_a_pause_in_place_keeps_the_steps_and_one_that_retracts_says_so(api):
    with api.team(layout="independent") as team:
        for mode in ("in_place", "retract"):
            step = team.begin(0, budget=600)
            assert api.post("/pause_generation", mode=mode).status_code == 200
            beside = api.later(team.step, 1)
            assert team.snapshot()["state"] == "open"
            assert api.post("/continue_generation").status_code == 200
            assert beside.result().status_code == 200
            if mode == "in_place":
                assert step.result().json()["step"]["output_tokens"] == 600
            else:
                assert step.result().status_code == 409
                assert "pause in_place" in error_of(step.result())["message"]
        assert [step["worker"] for step in team.snapshot()["steps"]].count(0) == 1


def test_what_is_published_may_push_a_live_view_past_the_context_and_ends_that_step(api):
    with api.team(input_ids=[9] * 900) as team:
        live = team.begin(0, budget=1000, written=100)
        assert team.say(input_ids=[10] * 1100).status_code == 200
        assert live.result().json()["step"]["finish"]["type"] == "context"
        refused = team.step(0)
        assert refused.status_code == 400 and "the context holds" in error_of(refused)["message"]
