"""What a client may get wrong: each gets its status and says what to do, and nothing stays."""

from __future__ import annotations

import json

import pytest

from runtime_patch.attention.layouts import LAYOUTS
from tests.oracle.tiny_tokenizer import SIZE
from tests.servers.api import Team, error_of

CONTEXT = 2048


pytestmark = pytest.mark.usefixtures("nothing_is_left")


@pytest.fixture
def team(api):
    with api.team() as team:
        yield team


def every_route(team: Team) -> dict:
    path, api = team.path, team.api
    return {
        "snapshot": api.get(path),
        "step": team.step(0),
        "say": team.say(text="Hint."),
        "abort": team.abort(0),
        "events": api.get(f"{path}/events"),
        "close": team.close(),
    }


def test_an_unknown_team_is_not_found_on_every_route(api):
    for route, reply in every_route(Team(api, {"team": "hw-nobody"})).items():
        assert reply.status_code == 404, f"{route}: {reply.text}"
        assert "unknown team 'hw-nobody'" in error_of(reply)["message"]


def test_a_closed_team_is_gone_on_every_route(api):
    with api.team() as team:
        assert team.close().json() == {"closed": True}
        for route, reply in every_route(team).items():
            assert reply.status_code == 410, f"{route}: {reply.text}"
            assert f"{team.name} is closed (request)" in error_of(reply)["message"]


@pytest.mark.parametrize("worker", [2, -1, 99, "Carol", "alice", ""])
def test_a_worker_that_the_team_does_not_have_is_refused_with_those_it_has(team, worker):
    for reply in (team.step(worker), team.say(text="Hi.", worker=worker), team.abort(worker)):
        assert reply.status_code == 400
        assert "0 Alice, 1 Bob" in error_of(reply)["message"]


def test_a_workers_second_live_step_is_refused_and_the_first_goes_on(team):
    first = team.begin(0, budget=900)
    second = team.step(0)
    assert second.status_code == 409 and error_of(second)["type"] == "live_step"
    assert team.say(text="Mine.", worker="Alice").status_code == 409
    assert first.result().json()["step"]["output_tokens"] == 900
    assert [step["number"] for step in team.snapshot()["steps"]] == [1]


@pytest.mark.parametrize("workers", [[], ["A"], [f"w{i}" for i in range(17)]])
def test_fewer_than_2_and_more_than_16_workers_are_refused(api, workers):
    reply = api.try_open(workers=workers)
    assert reply.status_code == 400
    assert f"2 to 16 workers, got {len(workers)}" in error_of(reply)["message"]


def test_2_and_16_workers_are_taken(api):
    for count in (2, 16):
        with api.team(workers=[f"w{i}" for i in range(count)]) as team:
            assert team.write(count - 1)["step"]["number"] == 1


@pytest.mark.parametrize("workers", [["A", "A"], ["A", " "], ["A", ""]])
def test_workers_names_are_distinct_and_not_empty(api, workers):
    reply = api.try_open(workers=workers)
    assert reply.status_code == 400 and "distinct and not empty" in error_of(reply)["message"]


@pytest.mark.parametrize("prompt", [{"prompt": ""}, {"input_ids": []}, {"messages": []}])
def test_an_empty_prompt_is_refused(api, prompt):
    reply = api.try_open(**prompt)
    assert reply.status_code == 400 and "prompt is empty" in error_of(reply)["message"]


def test_exactly_one_prompt_is_wanted(api):
    for body in ({}, {"prompt": "a", "input_ids": [9]}):
        reply = api.post("/hogwild/teams", **body)
        assert reply.status_code == 400
        assert "exactly one of prompt, messages, input_ids" in error_of(reply)["message"]


def test_an_unknown_layout_is_refused_with_the_known_ones(api):
    reply = api.try_open(layout="spiral")
    assert reply.status_code == 400 and error_of(reply)["type"] == "unknown_layout"
    assert f"'spiral'; known layouts: {', '.join(LAYOUTS)}" in error_of(reply)["message"]


def test_a_prompt_longer_than_the_context_is_refused_with_the_numbers(api):
    reply = api.try_open(input_ids=[9] * 3000)
    assert reply.status_code == 400
    assert "3000" in error_of(reply)["message"] and str(CONTEXT) in error_of(reply)["message"]


def test_a_step_that_its_view_leaves_no_room_for_is_refused_with_the_numbers(api):
    with api.team(input_ids=[9] * 1000) as team:
        assert team.say(input_ids=[9] * 500).status_code == 200
        reply = team.step(0, input_ids=[9] * 40, budget=509)
        assert reply.status_code == 400
        numbers = "view has 1500 tokens, 40 would be fed and up to 509 written: 2049 in all"
        assert numbers in error_of(reply)["message"]
        assert f"context holds {CONTEXT}" in error_of(reply)["message"]
        assert team.write(0, input_ids=[9] * 40, budget=9)["step"]["history_start"] == 1500


def test_a_budget_beyond_any_context_is_refused_with_the_numbers(team):
    for budget in (CONTEXT, 10**12):
        reply = team.step(0, budget=budget)
        assert reply.status_code == 400
        assert str(budget) in error_of(reply)["message"] and str(CONTEXT) in reply.text


@pytest.mark.parametrize(
    ("sampling", "named"),
    [
        ({"temperature": -1}, "temperature"),
        ({"temperature": "hot"}, "temperature"),
        ({"temprature": 1}, "temprature"),
        ({"top_p": 0}, "top_p"),
        ({"top_p": 1.5}, "top_p"),
        ({"top_k": "all"}, "top_k"),
        ({"min_p": 2}, "min_p"),
        ({"max_new_tokens": 0}, "max_new_tokens"),
        ({"max_new_tokens": -5}, "max_new_tokens"),
        ({"max_new_tokens": 2.5}, "max_new_tokens"),
        ({"max_new_tokens": True}, "max_new_tokens"),
        ({"max_new_tokens": None}, "max_new_tokens"),
        ({"max_new_tokens": 2**70}, "sampling_params"),
        ({"min_new_tokens": 9, "max_new_tokens": 3}, "min_new_tokens"),
        ({"n": 2}, "n must be 1"),
        ({"beam_width": 4}, "beam_width must be 1"),
        ({"stop": 7}, "stop"),
        ({"stop_regex": "("}, "unterminated"),
        ({"stop_token_ids": "ab"}, "stop_token_ids"),
        ({"ignore_eos": "yes"}, "ignore_eos"),
        ({"logit_bias": {str(SIZE): 1}}, "logit_bias"),
        ({"custom_params": [1]}, "custom_params"),
        ({"json_schema": {"type": "object"}}, "json_schema"),
        ({"json_schema": "{"}, "json grammar"),
    ],
    ids=str,
)
def test_sampling_parameters_that_make_no_sense_are_refused_by_name(team, sampling, named):
    reply = team.step(0, sampling=sampling)
    assert reply.status_code == 400 and named in error_of(reply)["message"]
    assert team.write(0)["step"]["number"] == 1


@pytest.mark.parametrize(
    "logprobs",
    [
        {"logprob_start_len": 77},
        {"top_logprobs_num": SIZE + 1},
        {"token_ids_logprob": [SIZE]},
    ],
    ids=str,
)
def test_logprobs_that_do_not_exist_are_refused(team, logprobs):
    reply = team.step(0, return_logprob=True, **logprobs)
    assert reply.status_code == 400 and str(*logprobs.values()).strip("[]") in reply.text
    assert team.write(0)["step"]["number"] == 1


@pytest.mark.parametrize("token", [-1, SIZE, 2**70])
def test_a_token_outside_the_vocabulary_is_refused_wherever_it_stands(api, team, token):
    replies = (
        api.try_open(input_ids=[9, token]),
        api.try_open(formatting={"header_own_ids": [token]}),
        api.try_open(formatting={"header_others_ids": [token]}),
        team.step(0, input_ids=[token]),
        team.step(None, reader=True, input_ids=[token]),
        team.say(input_ids=[9, token]),
    )
    for reply in replies:
        assert reply.status_code == 400
        assert f"no token {token}: the model's vocabulary has {SIZE}" in error_of(reply)["message"]


def test_a_step_that_feeds_nothing_is_refused(team):
    for reply in (team.step(0, text=""), team.step(0, input_ids=[]), team.say(text="")):
        assert reply.status_code == 400 and "nothing to feed" in error_of(reply)["message"]


@pytest.mark.parametrize(
    ("body", "place"),
    [
        (b"{nope", "not JSON"),
        (b"", "body"),
        (b"[1, 2]", "body"),
        (json.dumps({"prompt": "a", "wokers": ["A", "B"]}).encode(), "wokers"),
        (json.dumps({"prompt": "a", "workers": 3}).encode(), "workers"),
        (json.dumps({"prompt": 5}).encode(), "prompt"),
        (json.dumps({"input_ids": ["a"]}).encode(), "input_ids.0"),
        (json.dumps({"prompt": "a", "formatting": {"headers": "sideways"}}).encode(), "headers"),
    ],
    ids=str,
)
def test_a_malformed_body_is_refused_with_the_place(api, body, place):
    headers = {"content-type": "application/json"}
    reply = api.http.post("/hogwild/teams", content=body, headers=headers)
    assert reply.status_code == 422 and place in error_of(reply)["message"]
    assert "runtime_patch" not in reply.text


@pytest.mark.parametrize(
    "purpose",
    [5, {}, {"kind": "step"}, {"kind": "dance", "team": "a"}, {"kind": "step", "team": "a"}],
    ids=str,
)
def test_an_ordinary_request_that_poses_as_a_teams_is_refused(api, purpose):
    sampling = {"max_new_tokens": 2, "custom_params": {"hogwild": purpose}}
    reply = api.post("/generate", text="Hello", sampling_params=sampling)
    assert reply.status_code == 400 and "belongs to the /hogwild routes" in reply.text
    assert api.generate([9, 9], 2).status_code == 200
