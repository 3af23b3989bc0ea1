"""Programs and states on a real server with a tiny random model.

What such a model writes means nothing; what is tested is that texts, records, transcripts
and the server's own view of the team agree, and that nothing is left over.
"""

from __future__ import annotations

import time

import httpx
import pytest
import sglang as sgl
from sglang.lang.choices import greedy_token_selection, unconditional_likelihood_normalized

import hogwild_sgl as hogwild
from hogwild_sgl import programs, prompts
from hogwild_sgl.client.client import Client
from hogwild_sgl.lang.endpoint import Endpoint
from hogwild_sgl.program.settings import Settings
from hogwild_sgl.transcript import Result, append_result, load_results

# The tiny model reads bytes, and 2048 of them: the built-in rules would fill its context.
SHORT = prompts.formatting(openers=False).replace(
    name="short",
    system="",
    user="{{problem}}",
    preamble="# Done",
    header_others="\n\n# Others",
    header_own="\n\n# Own",
    solo="",
    finisher="So \\boxed{",
)
QUICK = dict(formatting=SHORT, budget=24, step_tokens=7, check_every=20, finisher_tokens=6)


@pytest.fixture(scope="module")
def backend(server) -> Endpoint:
    return Endpoint(server.url)


@pytest.fixture(autouse=True)
def _nothing_left(server):
    yield
    with Client(server.url) as client:
        deadline = time.monotonic() + 20
        while client.info()["teams"]:
            assert time.monotonic() < deadline, "a team is still open"
            time.sleep(0.1)
    assert httpx.get(f"{server.url}/health_generate", timeout=60).status_code == 200


def in_team(backend, body, *, workers=("Alice", "Bob"), formatting=SHORT, **sampling):
    """``body(s, team)`` in a program on a team; returns what it returns."""

    @sgl.function
    def program(s):
        s += sgl.user("Add one and two.")
        return body(s, hogwild.fork(s, workers=workers, formatting=formatting))

    return program.run(backend=backend, **sampling).ret_value


@pytest.mark.parametrize("name", programs.NAMES)
def test_every_program_runs_and_its_result_is_saved(backend, tmp_path, name):
    settings = dict(QUICK)
    if name == "hint":
        settings["hints"] = ((6, "Look."),)
    if name == "skeleton_of_thought":
        settings["points"] = 2
    result = programs.find(name).solve("Add one and two.", Settings(**settings), backend=backend)
    assert result.steps and result.total_tokens > 0
    assert result.prompt_tokens > 0 and result.kv_tokens > 0
    append_result(tmp_path / "runs.jsonl", result)
    assert list(load_results(tmp_path / "runs.jsonl")) == [result]


@pytest.mark.parametrize("layout", ["combined", "interleaved", "contiguous", "independent"])
@pytest.mark.parametrize("workers", [2, 3, 5])
def test_a_team_uses_its_budget_in_every_layout(backend, layout, workers):
    settings = Settings(**QUICK, layout=layout, workers=workers)
    result = programs.find("team").solve("Add one and two.", settings, backend=backend)
    assert result.stopped == "budget"
    assert result.passes == settings.budget
    for worker in range(workers):
        steps = result.by_worker(worker)
        assert [step.number for step in steps] == list(range(1, len(steps) + 1))
        assert all(step.output_tokens <= 7 for step in steps)
        assert sum(step.output_tokens for step in steps) == result.tokens[worker]


def test_the_transcript_is_what_the_server_published(backend):
    def body(s, team):
        team.reason(30, step_tokens=6, hints=[(10, "Look.")], probes=[15], probe_tokens=4)
        return team.snapshot(), team.result("t", "p", answer=None, final_text="")

    snapshot, result = in_team(backend, body)
    published = [step for step in result.steps if step.index is not None]
    assert [(s.index, s.worker, s.number) for s in published] == [
        (s.index, s.worker, s.number) for s in snapshot.steps
    ]
    for step, there in zip(published, snapshot.steps, strict=True):
        # The server's text has no last sampled token, but the one carried from before.
        assert step.fed.strip() in there.text
        assert step.history_published is not None
    assert result.probes[0].budget == 15
    assert result.kv_tokens == snapshot.kv_tokens
    assert snapshot.team_forwards == result.passes
    assert Result.from_json(result.to_json()) == result


def test_states_hold_the_text_that_was_published(backend):
    def body(s, team):
        before = team[0].text()
        team[0] += "\n\nA: " + sgl.gen("one", max_tokens=5)
        team[0] += " B: " + sgl.gen("two", max_tokens=5)
        team[1] += "\n\nnoted"
        team.sync()
        own = team[0].text()[len(before) :]
        assert own == "\n\nA: " + team[0]["one"] + " B: " + team[0]["two"]
        return (
            own,
            [step.text for step in team.snapshot().steps if step.worker == 0],
            (team.snapshot().steps[-1].text),
        )

    own, steps, noted = in_team(backend, body)
    assert len(steps) == 2 and noted.endswith("noted")
    assert "".join(steps).startswith("\n\nA: ")


def test_no_reader_changes_what_a_team_holds(backend):
    def body(s, team):
        team += lambda i: f"\n\n{i}: " + sgl.gen("x", max_tokens=6)
        team.sync()
        before = team.snapshot()
        s += team.finish() + sgl.gen("answer", max_tokens=5)
        s.sync()
        assert s.error() is None
        team[0] += sgl.select("c", [" yes", " no"])
        team[0].sync()
        after = team.snapshot()
        assert (after.steps, after.team_forwards) == (before.steps, before.team_forwards)
        assert after.kv_tokens == before.kv_tokens

    in_team(backend, body)


@pytest.mark.parametrize(
    "method", [None, greedy_token_selection, unconditional_likelihood_normalized]
)
def test_select_chooses_by_the_logprobs_in_the_workers_view(backend, method):
    def body(s, team):
        team[0] += "\n\nIs it so?"
        chosen = (
            sgl.select("c", [" yes", " no", " now"])
            if method is None
            else sgl.select("c", [" yes", " no", " now"], choices_method=method)
        )
        team[0] += chosen
        team[0].sync()
        assert team[0].error() is None
        return team[0]["c"], team[0].get_meta_info("c")

    chosen, meta = in_team(backend, body)
    means = dict(zip([" yes", " no", " now"], meta["normalized_prompt_logprobs"], strict=True))
    assert all(mean < 0 for mean in means.values())
    if method is None:
        assert chosen == max(means, key=means.get)


def test_a_choices_score_is_that_of_the_same_text_in_an_ordinary_request(backend):
    """A team without headers whose worker wrote nothing yet sees what a plain request sees."""
    bare = SHORT.replace(preamble="", header_others="", header_own="")

    def in_a_team(s, team):
        team[0] += " Is it so?"
        team[0] += sgl.select("c", [" yes", " no"])
        return team[0].get_meta_info("c")

    @sgl.function
    def plainly(s):
        s += sgl.user("Add one and two.")
        s += " Is it so?" + sgl.select("c", [" yes", " no"])
        return s.get_meta_info("c")

    there = in_team(backend, in_a_team, formatting=bare)["normalized_prompt_logprobs"]
    plain = plainly.run(backend=backend).ret_value["normalized_prompt_logprobs"]
    assert there == pytest.approx(plain, abs=2e-4)


def test_forbidden_tokens_and_the_end_of_the_turn_are_never_written(backend):
    chosen = SHORT.replace(forbidden=["**", "$$"], end="none")
    ids = {token for (token,) in backend.client.tokenize(["**", "$$"])}
    written: list[int] = []

    def body(s, team):
        team.on_event(
            lambda e: written.extend(getattr(getattr(e, "reply", None), "output_ids", ()))
        )
        return team.reason(120, temperature=2.0, step_tokens=40).reason

    assert in_team(backend, body, formatting=chosen) == "budget"
    assert len(written) >= 200
    assert not ids & set(written)


def test_greedy_runs_of_one_worker_after_the_other_repeat(backend):
    def body(s, team):
        for number in range(3):
            for worker in (0, 1):
                team[worker] += f"\n\n{number}: " + sgl.gen(f"x{number}", max_tokens=6)
                team[worker].sync()
        return [state.text() for state in team]

    assert in_team(backend, body, temperature=0) == in_team(backend, body, temperature=0)


def test_live_steps_are_dropped_when_the_program_ends(backend):
    def body(s, team):
        team[0] += "\n\nA: " + sgl.gen("long", max_tokens=900, ignore_eos=True)
        deadline = time.monotonic() + 20
        while team.snapshot().workers[0].live is None:
            assert time.monotonic() < deadline
        return team[0]

    worker = in_team(backend, body, formatting=SHORT.replace(end="none"))
    assert worker["long"] == "" and worker.error() is None


def test_an_aborted_step_leaves_the_worker_free(backend):
    def body(s, team):
        team[0] += "\n\nA: " + sgl.gen("long", max_tokens=900, ignore_eos=True)
        deadline = time.monotonic() + 20
        while not team.abort("Alice"):
            assert time.monotonic() < deadline
        assert team[0]["long"] == ""
        team[0] += "\n\nB: " + sgl.gen("short", max_tokens=3)
        team.sync()
        return [step.text for step in team.snapshot().steps]

    (text,) = in_team(backend, body, formatting=SHORT.replace(end="none"))
    assert text.startswith("\n\nB: ")


def test_many_programs_run_at_once(backend):
    @sgl.function
    def program(s, number):
        s += sgl.user(f"Add {number} and two.")
        team = hogwild.fork(s, formatting=SHORT, seed=number)
        team.reason(16, step_tokens=6)
        s["steps"] = len(team.snapshot().steps)

    states = program.run_batch([{"number": n} for n in range(6)], backend=backend, num_threads=6)
    assert all(state["steps"] >= 4 for state in states)
