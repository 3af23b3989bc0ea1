"""A team's event stream, what closes a team, and the messages of a streamed step."""

from __future__ import annotations

import json
import threading
import time

import pytest

from tests.oracle.tiny_tokenizer import build_tokenizer
from tests.servers.api import wait

# More than is written before somebody acts. Only a worker that reads nobody has the room.
LONG = 1900
ALONE = {"layout": "independent"}


pytestmark = pytest.mark.usefixtures("nothing_is_left")


def kinds(events: list[dict]) -> list[str]:
    """The events' types, each run of texts as one."""
    found: list[str] = []
    for event in events:
        if event["type"] != "text" or found[-1:] != ["text"]:
            found.append(event["type"])
    return found


def test_a_step_is_told_from_its_start_through_its_text_to_its_publication(api):
    with api.team(prompt="Add.") as team:
        listener = team.listen()
        step = team.write("Bob", text="Go", budget=9)
        team.close()
    events = listener.until_closed()
    assert kinds(events) == ["snapshot", "start", "text", "published", "closed"]
    assert events[0]["team"] == team.name and events[0]["steps"] == []
    for event in events[1:-1]:
        assert (event["worker"], event["name"], event["number"]) == (1, "Bob", 1)
    texts = [event["text"] for event in events if event["type"] == "text"]
    assert "".join(texts) == step["text"]
    published = events[-2]
    assert published["index"] == 0 and published["tokens"] == step["step"]["published_tokens"]
    carried = build_tokenizer().decode(step["output_ids"][-1:])
    assert published["text"] + carried == "Go" + step["text"]
    assert events[-1]["reason"] == "request"


def test_a_hint_is_told_as_said_and_a_reader_is_not_told(api):
    with api.team() as team:
        listener = team.listen()
        team.say(text="Hint.")
        team.say(text="Mine.", worker=0)
        team.write(None, reader=True, text="So")
        team.close()
    events = listener.until_closed()
    assert kinds(events) == ["snapshot", "said", "said", "closed"]
    assert [event["name"] for event in events[1:3]] == [None, "Alice"]
    assert [event["text"] for event in events[1:3]] == ["Hint.", "Mine."]


def test_an_aborted_step_is_told_as_dropped_and_its_number_is_given_again(api):
    with api.team() as team:
        listener = team.listen()
        team.begin(0, budget=900)
        assert team.abort("Alice").json() == {"aborted": True}
        dropped = listener.wait_for("dropped")
        assert (dropped["name"], dropped["number"], dropped["reason"]) == ("Alice", 1, "aborted")
        assert team.write(0)["step"]["number"] == 1
        team.close()
    after = kinds(listener.until_closed())
    assert after == ["snapshot", "start", "text", "dropped", "start", "text", "published", "closed"]


def test_everybody_who_listens_hears_the_same_and_who_comes_late_gets_the_snapshot(api):
    with api.team() as team:
        early = team.listen()
        team.write(0)
        late = team.listen()
        team.write(1)
        team.close()
    heard, missed = early.until_closed(), late.until_closed()
    assert [step["name"] for step in missed[0]["steps"]] == ["Alice"]
    published = [event["type"] for event in heard].index("published")
    assert missed[1:] == heard[published + 1 :]


def test_a_team_outlives_a_listener_that_goes_away(api):
    with api.team() as team:
        listener = team.listen()
        listener.leave()
        assert team.write(0)["step"]["number"] == 1


def test_a_held_team_is_closed_when_its_connection_breaks_and_its_steps_end(api):
    with api.team() as team:
        other, owner = team.listen(), team.listen(hold=True)
        step = team.begin(0, budget=LONG)
        owner.leave()
        assert other.until_closed()[-1]["reason"] == "owner_gone"
        assert step.result().status_code == 409
        assert "owner_gone" in team.step(0).json()["error"]["message"]


def test_a_held_team_that_is_closed_by_request_is_closed_once(api):
    with api.team() as team:
        owner = team.listen(hold=True)
        assert team.close().status_code == 200
        assert kinds(owner.until_closed()) == ["snapshot", "closed"]


def test_a_team_that_nobody_uses_is_closed_after_its_idle_time(api):
    with api.team(idle_timeout=0.5) as team:
        assert team.listen().until_closed()[-1]["reason"] == "idle"
        assert "idle" in team.step(0).json()["error"]["message"]


def test_a_team_is_not_idle_while_it_is_asked_about_or_written_for(api):
    with api.team(idle_timeout=1.0) as team:
        for _ in range(20):
            team.snapshot()
            time.sleep(0.1)
        step = team.begin(0, budget=LONG)
        time.sleep(2.0)
        assert not step.done() and team.abort(0).json() == {"aborted": True}


def test_a_team_without_an_idle_time_stays_open(api):
    with api.team(idle_timeout=None) as patient, api.team(idle_timeout=0.3) as other:
        other.listen().until_closed()
        assert patient.opened["idle_timeout"] is None and patient.snapshot()["state"] == "open"


@pytest.mark.parametrize("idle_timeout", [0, -1])
def test_an_idle_time_is_positive(api, idle_timeout):
    reply = api.try_open(idle_timeout=idle_timeout)
    assert reply.status_code == 422 and "idle_timeout" in reply.json()["error"]["message"]


def test_two_clients_that_close_at_once_both_find_it_closed(api):
    with api.team(**ALONE) as team:
        team.begin(0, budget=LONG)
        team.begin(1, budget=LONG)
        together = threading.Barrier(4)

        def close() -> int:
            together.wait()
            return team.close().status_code

        statuses = [future.result() for future in [api.later(close) for _ in range(4)]]
        assert 200 in statuses and set(statuses) <= {200, 410}


def test_a_team_closed_while_its_steps_run_ends_them_all_with_an_error(api):
    with api.team(workers=["A", "B", "C"], **ALONE) as team:
        steps = [team.begin(worker, budget=LONG) for worker in range(3)]
        steps.append(api.later(team.step, None, reader=True, budget=300))
        wait(lambda: team.snapshot()["readers"] == 1, "the reader")
        listener = team.listen()
        assert team.close().status_code == 200
        for step in steps:
            assert step.result().status_code in (409, 410), step.result().text
        dropped = [e["name"] for e in listener.until_closed() if e["type"] == "dropped"]
        assert sorted(dropped) == ["A", "B", "C"]


def test_a_streamed_step_says_in_the_end_what_a_plain_one_replies(api):
    with api.team() as team, team.streamed(0, budget=12) as messages:
        start, *texts, end = messages
    assert start["type"] == "start" and end["type"] == "end"
    assert {text["type"] for text in texts} == {"text"} and len(texts) > 3
    assert "".join(text["text"] for text in texts) == end["text"]
    assert [token for text in texts for token in text["output_ids"]] == end["output_ids"]
    with api.team() as team:
        plain = team.write(0, budget=12)
    assert end["text"] == plain["text"] and end["step"].keys() == plain["step"].keys()
    same = plain["step"].keys() - {"team"}
    assert {key: end["step"][key] for key in same} == {key: plain["step"][key] for key in same}


def test_a_streamed_step_ends_with_done_and_a_refused_one_has_its_status(api):
    with api.team() as team:
        body = {"worker": 0, "text": "Go", "stream": True, "sampling_params": {"max_new_tokens": 2}}
        lines = api.post(f"{team.path}/steps", **body).text.strip().split("\n\n")
        assert lines[-1] == "data: [DONE]"
        assert json.loads(lines[-2].removeprefix("data: "))["type"] == "end"
        assert api.post(f"{team.path}/steps", **body | {"worker": 7}).status_code == 400


def test_an_abort_in_the_middle_of_a_stream_is_told_in_the_stream(api):
    with api.team() as team, team.streamed(0, budget=LONG) as messages:
        for message in messages:
            if message["type"] == "text":
                team.abort(0)
                break
        last = list(messages)[-1]
    assert last["type"] == "error" and last["error"]["status"] == 409
    assert last["error"]["type"] == "aborted"
