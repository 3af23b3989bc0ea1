"""Prompts are shared through the tree with everybody, published steps with nobody."""

from __future__ import annotations

import random
from collections.abc import Iterator

import httpx
import pytest

from tests.oracle.record import read_record
from tests.servers.clients import Outcome, TeamClient, TeamSpec, generate, held, tokens

SPEC = TeamSpec(2, "combined", "isolated", prompt=60)


@pytest.fixture
def http(server) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=server.url, timeout=120, trust_env=False) as client:
        yield client


@pytest.fixture
def draw(request) -> random.Random:
    """Texts of this test alone: what an earlier one left in the tree cannot match."""
    return random.Random(request.node.name)


def _ordinary(http: httpx.Client, prompt: list[int]) -> Outcome:
    rid = f"sharing-{random.Random().getrandbits(64):x}"
    return generate(http, rid, prompt, 1)


def _prefill(server, team: str) -> list[dict]:
    """The rows in which a team's prompt was computed."""
    forwards = [line for line in read_record(server.record) if line["event"] == "forward"]
    rows = [row for line in forwards for row in line["rows"]]
    return [row for row in rows if row["rid"] == f"{team}-prompt"]


def test_an_ordinary_request_finds_the_prompt_of_a_team(http, draw):
    team = TeamClient(http, SPEC, draw)
    team.write(0, tokens(draw, 4), 6, rule=False)
    assert _ordinary(http, team.prompt + tokens(draw, 9)).meta["cached_tokens"] == 60
    team.close()


def test_a_team_finds_the_prompt_of_an_ordinary_request(server, http):
    prompt = tokens(random.Random(5), 60)
    _ordinary(http, prompt)
    team = TeamClient(http, SPEC, random.Random(5))
    assert team.prompt == prompt
    rows = _prefill(server, team.name)
    # SGLang always computes a prompt's last token.
    assert [(row["position"], row["tokens"]) for row in rows] == [(59, prompt[-1:])]
    team.close()


def test_teams_hold_a_common_prompt_once(http):
    before = held(http, 0)
    spec = TeamSpec(2, "combined", None, prompt=50)
    teams = [TeamClient(http, spec, random.Random(seed)) for seed in (21, 22, 22)]
    assert teams[1].prompt == teams[2].prompt != teams[0].prompt
    assert held(http, before + 100) == before + 100
    teams.pop().close()
    assert held(http, before + 100) == before + 100
    teams.pop().close()
    assert held(http, before + 50) == before + 50
    teams.pop().close()
    assert held(http, before) == before


def test_no_ordinary_request_matches_a_published_step(http, draw):
    """Its KV depends on what its writer saw."""
    team = TeamClient(http, SPEC, draw)
    step = team.write(0, tokens(draw, 4), 8, rule=False)
    said = team.say(None, tokens(draw, 6))
    published = step.fed + step.output[:-1] + said.fed
    namespace = {"extra_key": f"hogwild:{team.name}"}
    for text, more, cached in (
        (team.prompt + published, {}, 60),
        (team.prompt + published, namespace, 0),
        (published, namespace, 0),
        (published, {}, 0),
    ):
        body = {"input_ids": [*text, 7], "sampling_params": {"max_new_tokens": 1}, **more}
        reply = http.post("/generate", json=body).raise_for_status().json()
        assert reply["meta_info"]["cached_tokens"] == cached
    team.close()


def test_no_team_matches_what_another_has_published(server, http, draw):
    """Even when its prompt goes on with the very tokens."""
    team = TeamClient(http, TeamSpec(2, "combined", None, prompt=40), draw)
    step = team.write(0, tokens(draw, 4), 8, rule=False)
    longer = team.prompt + step.fed + step.output
    body = {"input_ids": longer, "workers": ["Alice", "Bob"]}
    name = http.post("/hogwild/teams", json=body).raise_for_status().json()["team"]
    rows = _prefill(server, name)
    assert rows[0]["position"] == 40
    assert [token for row in rows for token in row["tokens"]] == longer[40:]
    http.delete(f"/hogwild/teams/{name}").raise_for_status()
    team.close()
