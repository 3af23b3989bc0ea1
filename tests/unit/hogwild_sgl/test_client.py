import socket
import threading
import time

import pytest

from hogwild_sgl.client.client import Client
from hogwild_sgl.client.records import StepReply, StepStarted, StepText
from hogwild_sgl.errors import (
    BadRequest,
    OutOfMemory,
    PatchNotActive,
    ProtocolError,
    ServerGone,
    StepConflict,
    StepDropped,
    TeamClosed,
    UnknownTeam,
    error_from,
)
from tests.fake_server import FakeServer, Writing
from tests.fake_server.teams import Refused

GREEDY = {"max_new_tokens": 50, "temperature": 0}


@pytest.fixture
def server():
    with FakeServer() as running:
        yield running


@pytest.fixture
def client(server):
    with Client(server.url, timeout=20) as one:
        yield one


def open_team(client: Client, **changes):
    return client.open(**{"prompt": "What is 6 * 7?", "workers": ["Alice", "Bob"], **changes})


def endless(writing: Writing) -> str:
    return "42}." if writing.worker is None else "word " * 400


def wait_for(condition) -> None:
    deadline = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def test_no_connection_is_left_idle_for_another_thread_to_close(server, client):
    with open_team(client) as team:
        team.step("Bob", "**Bob [1]:** ", GREEDY)
        list(team.stream_step("Alice", "**Alice [1]:** ", GREEDY))
        assert len(server.requests) >= 3
        wait_for(lambda: not server.sockets)


def test_a_team_is_opened_written_to_and_closed(server, client):
    with open_team(client, seed=5, layout="interleaved") as team:
        assert team.info.workers == ("Alice", "Bob")
        assert (team.info.seed, team.info.layout) == (5, "interleaved")
        reply = team.step("Bob", "**Bob [1]:** ", GREEDY)
        assert reply.step.name == "Bob"
        assert reply.step.finish_type == "sentence"
        assert reply.step.published_tokens == reply.step.fed_tokens + reply.step.output_tokens - 1
        said = team.say("A hint.")
        assert (said.worker, said.index, said.finish_type) == (None, 1, "said")
        snapshot = team.snapshot()
        assert [step.name for step in snapshot.steps] == ["Bob", None]
        assert snapshot.workers[1].steps == 1
        assert snapshot.workers[0].live is None
    assert server.team.closed


def test_a_streamed_step_is_a_start_then_text_then_the_reply(client):
    with open_team(client) as team:
        start, *middle, end = team.stream_step(0, "Go: ", GREEDY)
        assert isinstance(start, StepStarted)
        assert all(isinstance(message, StepText) for message in middle)
        assert isinstance(end, StepReply)
        assert "".join(message.text for message in middle) == end.text
        assert [i for message in middle for i in message.output_ids] == list(end.output_ids)


def test_a_reader_leaves_the_team_as_it_was(client):
    with open_team(client) as team:
        before = team.snapshot()
        reply = team.read("So it is \\boxed{", {"max_new_tokens": 5})
        assert reply.step.reader and reply.step.index is None
        assert team.snapshot() == before


def test_reader_and_step_say_who_they_are_in_their_bodies(server, client):
    with open_team(client) as team:
        team.read([1, 2, 3], {"max_new_tokens": 0}, worker=1, return_logprob=True)
        body = server.bodies("/steps")[-1]
        assert body["input_ids"] == [1, 2, 3] and "text" not in body
        assert (body["reader"], body["worker"], body["return_logprob"]) == (True, 1, True)


def test_events_begin_with_a_snapshot_and_end_when_the_team_closes(client):
    team = open_team(client)
    events = team.events()
    assert next(events)["type"] == "snapshot"
    team.step(0, "Go: ", GREEDY)
    team.close()
    kinds = [event["type"] for event in events]
    assert "published" in kinds and kinds[-1] == "closed"
    team.close()  # a second time is no error


def test_a_team_held_by_a_connection_closes_when_that_breaks(server, client):
    other = Client(server.url)
    team = other.open(prompt="p", workers=["A", "B"])
    events = team.events(hold=True)
    next(events)
    events.close()
    wait_for(lambda: server.team.closed)


def test_a_live_step_is_aborted_from_another_thread():
    with FakeServer(endless) as server, Client(server.url) as client:
        server.board.pause = 0.005
        team = open_team(client)
        caught: list[Exception] = []

        def write():
            try:
                team.step(0, "Go: ", {"max_new_tokens": 300})
            except StepDropped as error:
                caught.append(error)

        thread = threading.Thread(target=write)
        thread.start()
        wait_for(lambda: team.snapshot().workers[0].live)
        assert team.snapshot().workers[0].live.text.startswith("Go: ")
        assert team.abort("Alice") is True
        thread.join(10)
        assert caught and not team.snapshot().steps
        assert team.abort(0) is False


def test_leaving_a_streamed_step_drops_it():
    with FakeServer(endless) as server, Client(server.url) as client:
        server.board.pause = 0.005
        team = open_team(client)
        messages = team.stream_step(0, "Go: ", {"max_new_tokens": 300})
        next(messages)
        next(messages)
        messages.close()
        wait_for(lambda: not server.team.live)
        assert team.snapshot().steps == ()


def test_each_refusal_is_an_exception_of_its_own(client):
    with open_team(client) as team:
        with pytest.raises(BadRequest, match="worker 9"):
            team.step(9, "x", GREEDY)
        with pytest.raises(BadRequest, match="at least one token"):
            team.step(0, "", GREEDY)
        team.close()
        with pytest.raises(TeamClosed) as closed:
            team.step(0, "x", GREEDY)
        assert (closed.value.status, closed.value.type) == (410, "team_closed")
    with pytest.raises(UnknownTeam) as unknown:
        client.team("hw-nowhere").snapshot()
    assert unknown.value.status == 404
    with pytest.raises(BadRequest, match="2 to 16"):
        open_team(client, workers=["Alice"])
    with pytest.raises(BadRequest, match="combined"):
        open_team(client, layout="circular")


def test_two_live_steps_of_one_worker_are_a_conflict():
    with FakeServer(endless) as server, Client(server.url) as client:
        server.board.pause = 0.005
        team = open_team(client)
        messages = team.stream_step(0, "Go: ", {"max_new_tokens": 300})
        next(messages)
        with pytest.raises(StepConflict) as caught:
            team.step(0, "x", GREEDY)
        assert caught.value.status == 409


def test_somebody_else_can_watch_a_team_and_say_something_in_it(server, client):
    with open_team(client) as team, Client(server.url) as other:
        guest = other.team(team.name)
        guest.say("Psst.")
        assert guest.snapshot().steps == team.snapshot().steps
        assert team.snapshot().steps[0].text == "Psst."


def test_a_full_pool_is_an_error_of_its_own(server, client):
    def full(path, body):
        if path.endswith("/teams"):
            raise Refused(503, "the KV pool has 100 slots, the team needs 900", "no_space")

    server.before = full
    with pytest.raises(OutOfMemory, match="900"):
        open_team(client)


def test_a_plain_sglang_server_is_named_as_such_with_the_remedy():
    with FakeServer(patched=False) as server, Client(server.url) as client:
        for call in (client.info, lambda: open_team(client)):
            with pytest.raises(PatchNotActive, match="hogwild serve"):
                call()


def test_nothing_listening_is_an_error_at_once():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{free.getsockname()[1]}"
    with pytest.raises(ServerGone, match="No server answers.*\n.*hogwild serve"):
        Client(url).info()


def test_a_silent_server_is_an_error_and_not_a_hang():
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        client = Client(f"http://127.0.0.1:{silent.getsockname()[1]}", timeout=0.3)
        with pytest.raises(ServerGone, match=r"silent for 0\.3 s"):
            client.info()


def test_a_server_that_dies_in_the_middle_of_a_step_is_an_error_and_not_a_hang():
    with FakeServer(endless) as server, Client(server.url) as client:
        server.board.pause = 0.005
        team = open_team(client)
        messages = team.stream_step(0, "Go: ", {"max_new_tokens": 300})
        next(messages)
        server.die()
        with pytest.raises(ServerGone):
            list(messages)
        with pytest.raises(ServerGone):
            team.snapshot()


def test_messages_go_through_the_models_own_template(server, client):
    talk = [{"role": "user", "content": "Hi"}]
    ids = client.render(talk, "So far", {"enable_thinking": False})
    assert server.words.decode(ids) == "<|user|>Hi<|assistant|>So far"
    assert server.bodies("/tokenize")[-1]["chat_template_kwargs"] == {"enable_thinking": False}
    assert talk == [{"role": "user", "content": "Hi"}]


def test_exactly_one_kind_of_prompt_is_given(client):
    with pytest.raises(ValueError, match="one of prompt"):
        client.open(workers=["A", "B"])
    with pytest.raises(ValueError, match="one of prompt"):
        client.open(workers=["A", "B"], prompt="x", input_ids=[1])


@pytest.mark.parametrize(
    ("status", "body", "kind"),
    [
        (400, {"error": {"message": "m", "type": "t"}}, BadRequest),
        (422, {"error": {"message": "m", "type": "t"}}, BadRequest),
        (400, {"object": "error", "message": "m", "type": "t", "code": 400}, BadRequest),
        (409, {"error": {"message": "m", "type": "aborted"}}, StepDropped),
        (404, {"detail": "Not Found"}, PatchNotActive),
        (500, "<html>", ProtocolError),
    ],
)
def test_error_replies_of_all_shapes_are_understood(status, body, kind):
    error = error_from(status, body)
    assert type(error) is kind
    assert error.status == status


def test_a_reply_that_lacks_a_field_says_which(server, client):
    server.open = lambda body: {"team": "hw-1", "workers": body["workers"]}
    with pytest.raises(ProtocolError, match="prompt_tokens"):
        open_team(client)
