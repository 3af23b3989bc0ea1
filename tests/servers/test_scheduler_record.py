"""Real servers under mixed traffic, replayed token by token in the dense float64 oracle."""

from __future__ import annotations

import copy
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest
import torch

from tests.oracle.agreement import Agreement, Sampled, compare
from tests.oracle.decoder import Decoder
from tests.oracle.record import read_record, replay_record
from tests.oracle.tiny_tokenizer import EOS
from tests.servers.clients import TOKENIZER, Outcome, TeamClient, first_end, held
from tests.servers.ledger import Entry, Ledger
from tests.servers.traffic import Traffic

# SGLang's own look at every KV slot: none used after it was freed, none freed twice.
CHECKS = {"SGLANG_CHECK_KV_PAGE_INVARIANTS": "1"}
SMALL_CHUNKS = ("--chunked-prefill-size", "32")
# Family of the model, the kernel it runs with, and arguments.
SERVERS = {
    "llama3rope": ("cpp",),
    "qwen2": ("aten", "--disable-overlap-schedule", *SMALL_CHUNKS),
    "qwen3": ("cpp", *SMALL_CHUNKS, "--enable-mixed-chunk"),
    "yarn": ("reference", "--disable-overlap-schedule"),
    "glm4": ("cpp", *SMALL_CHUNKS),
}


@pytest.fixture(scope="module", autouse=True)
def one_thread():
    """The oracle's tensors are small: threads would only wait for each other."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@dataclass(frozen=True)
class Run:
    """One server's traffic and its record.

    held: KV slots in use when the traffic was over but the teams still open; then when
        the teams were closed; then after a flush, whose status is flushed.
    snapshots: of each team before it was closed. open_teams: how many were left.
    settings: the server's, as it reports them.
    """

    model: Path
    args: list[str]
    teams: list[TeamClient]
    outcomes: list[Outcome]
    lines: list[dict]
    ledger: Ledger
    snapshots: list[dict]
    held: tuple[int, int, int]
    flushed: int
    open_teams: int
    settings: dict

    def entry(self, outcome: Outcome) -> Entry:
        rid = outcome.rid or self.ledger.published[outcome.team][outcome.step["index"]]
        return self.ledger.entries[rid]


@pytest.fixture(scope="module", params=SERVERS)
def run(request, start_server) -> Run:
    kernel, *args = SERVERS[request.param]
    with start_server(request.param, *args, **CHECKS, HOGWILD_KERNEL=kernel) as server:
        http = httpx.Client(
            base_url=server.url,
            timeout=120,
            limits=httpx.Limits(max_connections=None),
            trust_env=False,
        )
        traffic = Traffic(http, seed=1)
        traffic.run()
        snapshots = [team.snapshot() for team in traffic.teams]
        in_use = [held(http, _expected_held(traffic.teams, snapshots))]
        traffic.close()
        in_use.append(held(http, 0))
        flushed = http.post("/flush_cache").status_code
        in_use.append(held(http, 0))
        about = http.get("/hogwild").json()
        assert about["kernel"] == kernel
        settings = http.get("/server_info").json()
        lines = read_record(server.record)
    return Run(
        *(server.model, args, traffic.teams, traffic.outcomes, lines, Ledger(lines)),
        *(snapshots, tuple(in_use), flushed, about["teams"], settings),
    )


def _expected_held(teams: list[TeamClient], snapshots: list[dict]) -> int:
    return _stored(teams) + sum(step["tokens"] for each in snapshots for step in each["steps"])


def _sampled(run: Run, outcome: Outcome) -> Sampled:
    """What the client saw, with what only the record knows of it."""
    if outcome.kind == "ordinary":
        return Sampled(outcome.fed, outcome.output)
    entry, fed, output = run.entry(outcome), outcome.fed, outcome.output
    if outcome.carries is not None and outcome.step["fed_tokens"] > len(fed):
        fed = entry.fed[:1] + fed
    if not outcome.complete:
        # Tokens that were sampled after the client's last look at it.
        more = entry.fed[len(fed) + len(output) :]
        output = output + more
    return Sampled(fed, output)


def _replay(run: Run, lines: list[dict]) -> Agreement:
    known = [outcome for outcome in run.outcomes if outcome.rid]
    prompts = {each.rid: each.fed for each in known if each.kind == "ordinary"}
    predictions = replay_record(lines, Decoder.load(run.model), prompts)
    return compare(predictions, {each.rid: _sampled(run, each) for each in known if each.greedy})


def test_every_greedy_token_of_every_request_is_the_oracles(run):
    agreement = _replay(run, run.lines)
    assert agreement.wrong == []
    assert agreement.equal + len(agreement.ties) == sum(
        len(_sampled(run, outcome).output) for outcome in run.outcomes if outcome.greedy
    )
    assert len(agreement.ties) <= 5, agreement.ties
    print(f"{agreement.equal} tokens equal, {len(agreement.ties)} ties")


def test_the_replay_notices_one_other_token_in_a_prompt(run):
    lines = copy.deepcopy(run.lines)
    name = run.teams[0].name
    prompt = next(line for line in lines if line["event"] == "part" and line["team"] == name)
    prompt["tokens"][5] = (prompt["tokens"][5] + 1) % 320
    own = [line for line in lines if line.get("team") == name or line["event"] == "forward"]
    for line in own:
        if line["event"] == "forward":
            line["rows"] = [row for row in line["rows"] if row["team"] == name]
    wrong = _replay(run, own).wrong
    assert any(isinstance(each, tuple) for each in wrong)


def test_requests_feed_what_their_clients_asked_for(run):
    """Carried tokens too, and nothing of a dropped step comes back."""
    for team in run.teams:
        parts = run.ledger.parts[team.name]
        assert parts["prompt"] == team.prompt
        assert parts.get("header_others", []) == team.header_others
        assert parts.get("header_own", []) == team.header_own
        assert team.opened["prompt_tokens"] == len(team.prompt)
    ever_carried = {team.name: team.ever_carried for team in run.teams}
    for outcome in run.outcomes:
        if outcome.team is None:
            continue
        fed = run.entry(outcome).fed
        if outcome.carries is not None:
            carried = fed[: outcome.step["fed_tokens"] - len(outcome.fed)]
            assert set(carried) <= ever_carried[outcome.team][outcome.carries]
            fed = fed[len(carried) :]
        assert fed[: len(outcome.fed)] == outcome.fed


def test_replies_count_what_the_record_shows(run):
    for outcome in run.outcomes:
        if not outcome.step:
            continue
        step, entry = outcome.step, run.entry(outcome)
        published = outcome.kind != "reader"
        assert step["worker"] == entry.worker or outcome.carries is not None
        assert step["output_tokens"] == len(outcome.output)
        assert step["fed_tokens"] == len(entry.fed) - max(0, len(outcome.output) - 1)
        assert step["published_tokens"] == (len(entry.fed) if published else 0)
        assert step["forwards"] == len(entry.pieces)
        assert step["team_forwards"] == entry.team_forwards
        assert step["history_start"] == entry.history_start
        assert step["history_published"] == entry.history_published
        assert step["index"] == entry.index
        assert entry.ended == ("publish" if published else "end_reader")


def test_snapshots_count_what_the_record_shows(run):
    for team, snapshot in zip(run.teams, run.snapshots, strict=True):
        entries = [run.ledger.entries[rid] for rid in run.ledger.published[team.name]]
        entries = entries[: len(snapshot["steps"])]
        assert [(step["worker"], step["tokens"]) for step in snapshot["steps"]] == [
            (entry.worker, len(entry.fed)) for entry in entries
        ]
        assert [step["text"] for step in snapshot["steps"]] == [
            TOKENIZER.decode(entry.fed, skip_special_tokens=False) for entry in entries
        ]
        history = len(team.prompt) + sum(len(entry.fed) for entry in entries)
        assert snapshot["history_tokens"] == history
        assert snapshot["readers"] == 0
        assert all(worker["live"] is None for worker in snapshot["workers"])
        assert snapshot["kv_tokens"] == history - len(team.prompt) + _stored([team])


def _stored(teams: list[TeamClient]) -> int:
    """KV slots of prompts and headers: texts that begin alike share them in the tree."""
    texts = []
    for team in teams:
        before = team.prompt if team.spec.headers == "prompt" else []
        texts += [team.prompt, before + team.header_others, before + team.header_own]
    return len({tuple(text[:end]) for text in texts for end in range(1, len(text) + 1)})


def test_steps_end_where_their_rule_says(run):
    for outcome in run.outcomes:
        if outcome.kind != "step" or not outcome.complete:
            continue
        finish, text = outcome.step["finish"]["type"], TOKENIZER.decode(outcome.fed)
        text += TOKENIZER.decode(outcome.output)
        if outcome.rule and not any(mark in text for mark in ("```", "~~~", "$$")):
            end = first_end(outcome)
            assert (finish == "sentence") == (end is not None)
            assert end in (None, len(outcome.output) - 1)
        if finish == "eos":
            assert outcome.output[-1] == EOS
        elif finish != "sentence":
            assert (finish, len(outcome.output)) == ("length", outcome.budget)


def test_every_kind_of_request_met_in_the_same_forwards(run):
    """Guards the others: without this they would say less than they seem to."""
    forwards = [line["rows"] for line in run.lines if line["event"] == "forward"]
    assert any(len({row["team"] for row in rows} - {None}) >= 4 for rows in forwards)
    kinds = [{row["kind"] for row in rows} for rows in forwards]
    assert any({"step", "reader", "plain"} <= kind for kind in kinds)
    seen = Counter((outcome.kind, outcome.complete) for outcome in run.outcomes)
    complete = {(kind, True) for kind in ("step", "reader", "say", "ordinary")}
    assert set(seen) == complete | {("step", False)}
    assert {outcome.greedy for outcome in run.outcomes} == {True, False}
    finishes = {outcome.step["finish"]["type"] for outcome in run.outcomes if outcome.step}
    assert {"sentence", "length", "said"} <= finishes
    if "--chunked-prefill-size" in run.args:
        assert any(len(e.pieces) > 1 and e.pieces[1] > 1 for e in run.ledger.entries.values())
    if "--enable-mixed-chunk" in run.args:
        assert any(_mixes(rows) for rows in forwards)


def _mixes(rows: list[dict]) -> bool:
    """Does the forward go on with some requests and prefill others?"""
    going_on = any(len(row["tokens"]) == 1 and row["position"] for row in rows)
    return going_on and any(len(row["tokens"]) > 1 for row in rows)


def test_teams_hold_their_own_kv_and_nothing_once_they_are_closed(run):
    open_teams, closed, flushed = run.held
    assert open_teams == _expected_held(run.teams, run.snapshots)
    assert (run.open_teams, closed, run.flushed, flushed) == (0, 0, 200, 0)


def test_the_overlap_scheduler_is_off_whether_or_not_it_was_asked_for(run):
    """With it a view could hold a token past the end of a step."""
    assert run.settings["disable_overlap_schedule"] is True
