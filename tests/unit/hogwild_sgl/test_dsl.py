"""A team's states behave as SGLang's program states do."""

from __future__ import annotations

import pytest
import sglang as sgl

import hogwild_sgl as hogwild
from hogwild_sgl import prompts
from hogwild_sgl.errors import TeamClosed
from tests.fake_server import FakeServer
from tests.fake_server.model import paragraphs
from tests.unit.hogwild_sgl.programs import BARE, endless, run, wait_for


def test_gen_alone_is_a_step_too(server):
    def body(s, team):
        team[0] += sgl.gen("a", max_tokens=50)
        team[0] += sgl.gen("b", max_tokens=50)
        team.sync()
        return team[0].text()

    assert run(server, body).ret_value.startswith("Prompt.w0s1t0")
    fed = [body["text"] for body in server.bodies("/steps")]
    assert fed == ["\n\n", ""]  # the second step begins with the carried token


def test_text_and_gen_together_are_one_published_step(server):
    def body(s, team):
        team[0] += "Alice: " + sgl.gen("a", max_tokens=50)
        team["Bob"] += "Bob: "
        team["Bob"] += sgl.gen("b", max_tokens=50)
        assert team[0]["a"] == "w0s1t0 w0s1t1 w0s1t2 w0s1t3 w0s1t4 w0s1t5.\n\n"
        assert team["Bob"].text() == "Prompt.Bob: " + team["Bob"]["b"]
        team[0] += "Alice again: " + sgl.gen("a2", max_tokens=50)
        team.sync()
        return [step.text for step in team.snapshot().steps if step.worker == 0]

    steps = run(server, body).ret_value
    assert steps[0].startswith("Alice: w0s1t0")
    # The blank line that ended the first step is carried over to the second.
    assert steps[1].startswith("\n\nAlice again: w0s2t0")


def test_workers_write_at_the_same_time_and_see_each_other(server):
    views: dict[int, str] = {}

    def script(writing):
        views[writing.worker] = writing.view
        return endless(writing)

    server.board.script = script
    server.board.pause = 0.005

    def body(s, team):
        team[0] += "Alice: " + sgl.gen("a", max_tokens=60)
        wait_for(lambda: team.snapshot().workers[0].live)
        team[1] += "Bob: " + sgl.gen("b", max_tokens=60)
        team.sync()

    run(server, body)
    assert "Alice: word" in views[1]


def test_text_without_gen_is_published_by_sync(server):
    def body(s, team):
        team[0] += "A note."
        assert team.snapshot().steps == ()
        team.sync()
        team.sync()
        return team.snapshot().steps

    (step,) = run(server, body).ret_value
    assert (step.text, step.name) == ("A note.", "Alice")


def test_text_without_gen_is_published_before_a_finisher_reads(server):
    seen = []

    def script(writing):
        seen.append(writing.view)
        return "42}."

    server.board.script = script

    def body(s, team):
        team[0] += "A note."
        team[0].sync()
        s += team.finish() + sgl.gen("answer", max_tokens=8)
        return s["answer"]

    run(server, body)
    assert "A note." in seen[-1]


def test_join_gathers_variables_and_publishes_what_is_pending(server):
    def body(s, team):
        team += sgl.gen("x", max_tokens=50)
        team[1] += " A note."
        team.join()
        assert [step.text[-7:] for step in team.snapshot().steps][-1] == "A note."
        return s["x"]

    values = run(server, body).ret_value
    assert [value[:6] for value in values] == ["w0s1t0", "w1s1t0"]


def test_join_can_append_the_workers_texts(server):
    def body(s, team):
        team[0] += "one. "
        team[1] += "two."
        team.join("concate_and_append")
        return s.text()

    assert run(server, body).ret_value == "Prompt.one. two."


def test_nothing_can_be_appended_after_join_or_close(server):
    def body(s, team):
        team.join()
        with pytest.raises(TeamClosed, match="Alice has been joined"):
            team[0] += "more"

    run(server, body)

    def other(s, team):
        with team:
            pass
        with pytest.raises(TeamClosed):
            team[1] += "more"

    run(server, other)


def test_a_function_of_the_number_is_applied_to_every_worker(server):
    def body(s, team):
        team += lambda i: f"I am {i}. "
        team += [sgl.gen("x", max_tokens=2), sgl.gen("x", max_tokens=3)]
        team.sync()
        return [state.text() for state in team]

    texts = run(server, body, workers=("A", "B")).ret_value
    assert texts == ["Prompt.I am 0. w0s1t0 w0s1t1", "Prompt.I am 1. w1s1t0 w1s1t1 w1s1t2"]


def test_sampling_parameters_of_gen_and_run_reach_the_server(server):
    def body(s, team):
        team[0] += sgl.gen("a", max_tokens=7, temperature=0.25, stop=["!"], top_k=5)
        team[1] += sgl.gen("b", max_tokens=9, regex=r"\d+")
        team.sync()

    run(server, body, temperature=0.75, top_p=0.9)
    first, second = sorted(server.bodies("/steps"), key=lambda body: body["worker"])
    params = first["sampling_params"]
    assert (params["max_new_tokens"], params["temperature"], params["top_k"]) == (7, 0.25, 5)
    assert (params["stop"], params["top_p"]) == (["!"], 0.9)
    assert first["end"] == "sentence"
    assert second["sampling_params"]["temperature"] == 0.75
    # A grammar says itself where its text ends.
    assert (second["sampling_params"]["regex"], second["end"]) == (r"\d+", "none")


def test_meta_info_has_the_steps_record_and_the_logprobs_asked_for(server):
    def body(s, team):
        team[0] += "Go: " + sgl.gen("a", max_tokens=9, return_logprob=True, logprob_start_len=0)
        return team[0].get_meta_info("a")

    meta = run(server, body).ret_value
    assert (meta["step"].name, meta["step"].number) == ("Alice", 1)
    assert len(meta["input_token_logprobs"]) == meta["step"].fed_tokens


def test_variables_of_the_program_are_known_to_the_workers(server):
    @sgl.function
    def program(s):
        s += "Prompt " + sgl.gen("plan", max_tokens=2)
        team = hogwild.fork(s)
        return team[0]["plan"], "plan" in team[1]

    assert program.run(backend=server.endpoint()).ret_value == ("42}", True)


@pytest.mark.parametrize("stream", [False, True])
def test_a_worker_streams_like_any_state(server, stream):
    server.board.pause = 0.02

    def body(s, team):
        team[0] += "Go: " + sgl.gen("a", max_tokens=50)
        pieces = list(team[0].text_iter("a"))
        return pieces, team[0]["a"], team[0].text()

    pieces, whole, text = _value(run(server, body, stream=stream))
    assert "".join(pieces) == whole
    assert (len(pieces) > 1) == stream
    assert text == "Prompt.Go: " + whole


def _value(state):
    """``ret_value`` of a program that may still run in its thread."""
    wait_for(lambda: hasattr(state, "ret_value"))
    return state.ret_value


def test_a_streamed_step_is_followed_by_the_next(server):
    def body(s, team):
        team[0] += "Go: " + sgl.gen("a", max_tokens=50)
        team[0] += "On: " + sgl.gen("b", max_tokens=50)
        team.sync()
        return [step.text for step in team.snapshot().steps]

    first, second = _value(run(server, body, stream=True))
    assert first.startswith("Go: ") and second.startswith("\n\nOn: ")


def test_an_aborted_step_leaves_nothing_and_the_worker_goes_on(server):
    server.board.script = endless
    server.board.pause = 0.005

    def body(s, team):
        team[0] += "Go: " + sgl.gen("a", max_tokens=300)
        wait_for(lambda: team.snapshot().workers[0].live)
        assert team.abort("Alice")
        assert team[0]["a"] == ""
        assert team[0].get_meta_info("a") == {"dropped": True}
        assert team[0].text() == "Prompt."
        team[0] += "Again: " + sgl.gen("b", max_tokens=3)
        team.sync()
        assert team[0].error() is None
        return [step.text for step in team.snapshot().steps]

    assert run(server, body).ret_value == ["Again: word word"]


def test_the_finisher_is_a_reader_that_sees_live_steps_and_is_never_published(server):
    seen: list[str] = []

    def script(writing):
        if writing.worker is None:
            seen.append(writing.view)
        return endless(writing)

    server.board.script = script
    server.board.pause = 0.005

    def body(s, team):
        team[0] += "Alice: " + sgl.gen("a", max_tokens=300)
        wait_for(lambda: team.snapshot().workers[0].live)
        s += team.finish("The answer is ") + sgl.gen("answer", max_tokens=8, stop="}")
        s += "} because " + sgl.gen("why", max_tokens=8)
        assert (s["answer"], s["why"]) == ("42", "42}.")
        return s.text(), team.snapshot().steps

    text, steps = run(server, body).ret_value
    assert text == "Prompt.\n\nThe answer is 42} because 42}."
    assert steps == ()
    assert "Alice: word" in seen[0]
    readers = [b for b in server.bodies("/steps") if b["reader"]]
    assert [b["text"] for b in readers] == [
        "\n\nThe answer is ",
        "\n\nThe answer is 42} because ",
    ]
    assert all("worker" not in b and b["end"] == "none" for b in readers)


def test_the_prompt_goes_through_the_models_own_template_with_its_preamble(server):
    @sgl.function
    def program(s):
        s += prompts.collaboration("6 * 7?")
        team = hogwild.fork(s, formatting=prompts.formatting(thinking="open"), seed=9)
        return team[0].text()

    text = program.run(backend=server.endpoint()).ret_value
    (body,) = server.bodies("/hogwild/teams")
    prompt = server.words.decode(body["input_ids"])
    assert prompt.startswith("<|system|>You are a team of two workers, Alice and Bob")
    assert "6 * 7?" in prompt
    assert prompt.endswith("<|assistant|><think>\n### Finished steps")
    assert (body["seed"], body["workers"]) == (9, ["Alice", "Bob"])
    assert "the other worker" in body["formatting"]["header_others"]
    assert text.endswith("### Finished steps")


def test_sglangs_own_endpoint_serves_as_well(server):
    @sgl.function
    def program(s):
        s += sgl.user("6 * 7?")
        team = hogwild.fork(s, formatting=BARE)
        team[0] += "Go: " + sgl.gen("a", max_tokens=4)
        return team[0]["a"]

    backend = sgl.RuntimeEndpoint(server.url)
    assert program.run(backend=backend).ret_value == "w0s1t0 w0s1t1 w0s1t2 w0s1t3"
    prompt = server.words.decode(server.bodies("/hogwild/teams")[0]["input_ids"])
    assert prompt == "<|user|>6 * 7?<|assistant|>"


def test_forbidden_texts_become_a_logit_bias(server):
    def body(s, team):
        team[0] += sgl.gen("a", max_tokens=3)
        team.sync()

    run(server, body, formatting=BARE.replace(forbidden=["</think>".strip("</>")]))
    bias = server.bodies("/steps")[0]["sampling_params"]["logit_bias"]
    ((token, value),) = bias.items()
    assert server.words.decode([int(token)]) == "think"
    assert value <= -1000


def test_a_forbidden_text_of_several_tokens_is_refused_and_the_team_closed(server):
    with pytest.raises(ValueError, match="2 tokens"):
        run(server, lambda s, team: None, formatting=BARE.replace(forbidden=["a b"]))
    assert server.team.closed


def test_workers_are_found_by_number_and_name(server):
    def body(s, team):
        assert team["Bob"] is team[1] is team[-1]
        assert len(team) == 2 and list(team) == [team[0], team[1]]
        with pytest.raises(KeyError, match="Alice"):
            team["Eve"]
        with pytest.raises(IndexError):
            team[2]
        with pytest.raises(TypeError):
            team[0] = team[1]

    run(server, body)


def test_programs_run_in_a_batch_each_with_its_own_team(server):
    @sgl.function
    def program(s, x):
        s += "Prompt " + x
        team = hogwild.fork(s, formatting=BARE)
        team += sgl.gen("a", max_tokens=30)
        team.join()
        s["out"] = s["a"]

    states = program.run_batch([{"x": "1"}, {"x": "2"}, {"x": "3"}], backend=server.endpoint())
    assert all(state["out"] == states[0]["out"] for state in states)
    assert len(server.teams) == 3
    wait_for(lambda: all(team.closed for team in server.teams.values()))


def test_a_program_without_threads_of_its_own_closes_its_team(server):
    @sgl.function
    def program(s):
        s += "Prompt."
        team = hogwild.fork(s, formatting=BARE)
        team[0] += sgl.gen("a", max_tokens=4)
        team.sync()
        s += team.finish("So ") + sgl.gen("answer", max_tokens=3)
        return s["answer"]

    state = program.run(backend=server.endpoint(), use_thread=False)
    assert state.ret_value == "42}."
    assert server.team.closed


def test_each_step_has_a_sampling_seed_of_its_own_that_the_masters_seed_fixes():
    def seeds() -> list[int]:
        with FakeServer(paragraphs) as server:

            def body(s, team):
                team += sgl.gen("a", max_tokens=30)
                team += sgl.gen("b", max_tokens=30)
                team.sync()

            run(server, body)
            return sorted(b["sampling_params"]["sampling_seed"] for b in server.bodies("/steps"))

    assert len(set(seeds())) == 4
    assert seeds() == seeds()
