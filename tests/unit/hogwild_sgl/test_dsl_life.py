"""How a program's team begins and ends, and what is refused."""

from __future__ import annotations

import threading
import warnings

import pytest
import sglang as sgl

import hogwild_sgl as hogwild
from hogwild_sgl.errors import BadRequest, PatchNotActive, ServerGone
from tests.fake_server import FakeServer
from tests.unit.hogwild_sgl.programs import endless, run, wait_for


def write_without_end(server, team):
    """Alice has a live step, which does not end by itself."""
    server.board.script = endless
    server.board.pause = 0.005
    team[0] += sgl.gen("a", max_tokens=300)
    wait_for(lambda: team.snapshot().workers[0].live)


def test_the_forked_state_goes_on_as_before_until_it_finishes(server):
    def body(s, team):
        s += " More: " + sgl.gen("x", max_tokens=2)
        return s["x"]

    assert run(server, body).ret_value == "42}"
    assert server.bodies("/generate")[-1]["text"] == "Prompt. More: "


def test_only_the_forked_state_can_finish(server):
    def body(s, team):
        with pytest.warns(UserWarning):
            team[0] += team.finish("x")
            return str(team[0].error())

    assert "state that the team was forked from" in run(server, body).ret_value


def test_the_team_closes_when_the_program_ends(server):
    run(server, lambda s, team: None)
    wait_for(lambda: server.team.closed)


def test_the_team_closes_when_the_program_fails(server):
    with pytest.raises(ZeroDivisionError):
        run(server, lambda s, team: 1 / 0)
    wait_for(lambda: server.team.closed)


def test_the_team_closes_only_after_the_finisher_is_done(server):
    server.board.pause = 0.01

    def body(s, team):
        s += team.finish() + sgl.gen("answer", max_tokens=20, ignore_eos=True)

    state = run(server, body)
    assert state["answer"].startswith("42}.")
    wait_for(lambda: server.team.closed)


def test_live_steps_are_dropped_without_an_error_when_the_program_ends(server):
    def body(s, team):
        write_without_end(server, team)
        return team[0]

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        worker = run(server, body).ret_value
        assert worker["a"] == "" and worker.error() is None


def test_nothing_stays_behind_a_program(server):
    run(server, lambda s, team: team.reason(10))
    wait_for(lambda: server.team.closed)
    names = ("_keep_hold", "_run_worker_in_context", "_close_after", "_probe")

    def left():
        return [t for t in threading.enumerate() if any(n in t.name for n in names)]

    wait_for(lambda: not left())


def test_a_server_that_dies_gives_errors_and_no_hang(server):
    def body(s, team):
        write_without_end(server, team)
        server.die()
        error = team[0].error()
        assert isinstance(error, ServerGone)
        assert "a" not in team[0]
        with pytest.raises(RuntimeError, match="Alice stopped with an error"):
            team[0] += "more"

    with pytest.warns(UserWarning):
        run(server, body)


@pytest.mark.parametrize(
    ("expression", "complaint"),
    [
        (lambda: sgl.gen("x", n=3), "one continuation"),
        (lambda: sgl.user("Hi"), "before hogwild.fork"),
        (lambda: sgl.select("x", ["a", "b"], temperature=1.0), "no temperature"),
    ],
)
def test_what_a_worker_cannot_do_is_an_error_that_says_so(server, expression, complaint):
    def body(s, team):
        with pytest.warns(UserWarning):
            team[0] += "Text "
            team[0] += expression()
            return str(team[0].error())

    assert complaint in run(server, body).ret_value


def test_a_worker_cannot_be_forked(server):
    def body(s, team):
        with pytest.raises(ValueError, match="cannot be forked"):
            team[0].fork(2)

    run(server, body)


def test_a_state_without_text_cannot_become_a_team(server):
    @sgl.function
    def program(s):
        hogwild.fork(s)

    with pytest.raises(ValueError, match="no prompt"):
        program.run(backend=server.endpoint())
    assert server.teams == {}


def test_a_team_on_a_plain_sglang_server_is_refused_with_the_remedy():
    with FakeServer(patched=False) as server:
        with pytest.raises(PatchNotActive, match="hogwild serve"):
            run(server, lambda s, team: None)


def test_what_the_server_refuses_is_raised_by_fork(server):
    @sgl.function
    def program(s):
        s += "Prompt."
        hogwild.fork(s, layout="circular")

    with pytest.raises(BadRequest, match="combined"):
        program.run(backend=server.endpoint())


def test_a_backend_that_is_no_sglang_server_is_refused():
    class Other:
        def get_chat_template(self):
            from sglang.lang.chat_template import get_chat_template

            return get_chat_template("default")

        def end_program(self, s):
            pass

    @sgl.function
    def program(s):
        s += "Prompt."
        hogwild.fork(s)

    with pytest.raises(TypeError, match="set_default_backend"):
        program.run(backend=Other())
