"""A driver running real threads and sockets through a team's states."""

from __future__ import annotations

import threading
import time

import pytest
import sglang as sgl

import hogwild_sgl as hogwild
from hogwild_sgl import prompts
from hogwild_sgl.errors import BadRequest, OutOfMemory, ServerGone, TeamClosed
from hogwild_sgl.lang.events import Dropped, Grown, NotBegun, Published, Started
from hogwild_sgl.transcript import Result
from tests.fake_server import FakeServer, Writing
from tests.fake_server.model import paragraphs
from tests.fake_server.teams import Refused


def wait_for(condition) -> None:
    deadline = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def reason(server, body, workers=("Alice", "Bob"), formatting=None, **options):
    """Runs ``body(s, team)`` on a team; returns what it returns."""

    @sgl.function
    def program(s):
        chosen = formatting or prompts.formatting()
        s += prompts.collaboration("6 * 7?", workers, chosen)
        return body(s, hogwild.fork(s, workers=workers, formatting=chosen, **options))

    return program.run(backend=server.endpoint()).ret_value


def steps_of(server) -> list[dict]:
    return [body for body in server.bodies("/steps") if not body["reader"]]


def test_the_program_of_the_design_runs_as_it_is_written(server):
    @sgl.function
    def alice_bob(s, problem):
        s += prompts.collaboration(problem, workers=("Alice", "Bob"))
        team = hogwild.fork(s, workers=("Alice", "Bob"))
        team.check(every=1024, text="Wait, am I doing redundant work? (yes/no): ")
        team.reason(max_forward_passes=64, stop=hogwild.boxed_answer)
        s += team.finish("So the final answer is \\boxed{") + sgl.gen("answer", stop="}")

    state = alice_bob.run(problem="6 * 7?", backend=server.endpoint())
    assert state["answer"] == "42"
    assert state.text().endswith("So the final answer is \\boxed{42")


def test_workers_write_headed_steps_until_the_budget_is_used(server):
    def body(s, team):
        outcome = team.reason(40)
        assert outcome.reason == "budget"
        assert outcome.answer is None
        return outcome, [step.text for step in team.snapshot().steps], team[0].text()

    outcome, texts, alice = reason(server, body)
    assert outcome.passes == 40
    assert texts[0].startswith(("\n\n**Alice [1]:** I am Alice.", "\n\n**Bob [1]:** I am Bob."))
    own = [text for text in texts if "**Alice [" in text]
    assert all(f"**Alice [{i}]:** " in text for i, text in enumerate(own, 1))
    assert all(text.strip() in alice for text in own)
    assert all(b["sampling_params"]["max_new_tokens"] <= 40 for b in steps_of(server))


def test_no_step_may_be_longer_than_asked(server):
    reason(server, lambda s, team: team.reason(30, step_tokens=4))
    assert {b["sampling_params"]["max_new_tokens"] for b in steps_of(server)} <= {1, 2, 3, 4}


def test_workers_may_not_end_their_turn_while_they_reason(server):
    server.board.script = lambda writing: "short and no end mark"
    outcome = reason(server, lambda s, team: team.reason(30))
    assert outcome.reason == "budget"
    params = [b["sampling_params"] for b in steps_of(server)]
    assert all(p["min_new_tokens"] == p["max_new_tokens"] for p in params)


def test_with_a_formatting_that_lets_them_they_may(server):
    server.board.script = lambda writing: "short and no end mark"
    chosen = prompts.formatting().replace(forbid_end_of_text=False)
    outcome = reason(server, lambda s, team: team.reason(30), formatting=chosen)
    assert outcome.reason == "workers_ended"


def test_sampling_for_reason_reaches_every_step(server):
    reason(server, lambda s, team: team.reason(20, temperature=0.125))
    assert {b["sampling_params"]["temperature"] for b in steps_of(server)} == {0.125}


def test_a_finished_step_with_an_answer_stops_the_team_and_leaves_the_others_live():
    def script(writing: Writing) -> str:
        if writing.worker == 0:
            return "So it is \\boxed{42}.\n\n" if writing.number == 2 else paragraphs(writing)
        return "word " * 400

    with FakeServer(script) as server:
        server.board.pause = 0.002

        def body(s, team):
            outcome = team.reason(300, stop=hogwild.boxed_answer)
            assert (outcome.reason, outcome.answer) == ("stop", "42")
            return team.snapshot()

        snapshot = reason(server, body)
        assert snapshot.workers[1].live is not None
        assert [step.name for step in snapshot.steps] == ["Alice", "Alice"]
        wait_for(lambda: server.team.closed)


def test_checks_are_asked_answered_and_told_to_the_program(server):
    def script(writing: Writing) -> str:
        asked = writing.fed.endswith("(yes/no): ")
        return "Yes, I stop that.\n\n" if asked else paragraphs(writing)

    server.board.script = script
    told = []

    def on_yes(check, team):
        told.append(check)
        team.check(every=15, who="first")
        return "Now for something else: "

    def body(s, team):
        team.check(every=30, who="all", on_yes=on_yes)
        return team.reason(80)

    outcome = reason(server, body)
    assert told and list(outcome.checks) == told
    assert all(check.answer == "yes" for check in told)
    fed = [body["text"] for body in steps_of(server)]
    assert sum("Now for something else: " in text for text in fed) >= 1
    asked = sum(text.endswith("redundant work? (yes/no): ") for text in fed)
    # The last ones may have been asked for when no forwards were left.
    assert len(told) <= asked <= len(told) + 2
    # Of the checks that were put to all, two had been asked for before the first answer.
    assert {check.worker for check in told[4:]} == {0}


def test_a_check_with_words_of_ones_own(server):
    def body(s, team):
        team.check(every=10, text="Am I late? (yes/no): ")
        team.reason(40)

    reason(server, body)
    assert any(body["text"].endswith("Am I late? (yes/no): ") for body in steps_of(server))


def test_probes_read_the_answer_during_the_run_and_count_for_nothing(server):
    def body(s, team):
        outcome = team.reason(40, probes=[10, 25, 40])
        return outcome, team.result("t", "6 * 7?", answer=None, final_text="")

    outcome, result = reason(server, body)
    assert [probe.budget for probe in outcome.probes] == [10, 25, 40]
    assert [probe.answer for probe in outcome.probes] == ["42", "42", "42"]
    assert result.finisher_passes == 0
    assert not [step for step in result.steps if step.kind == "reader"]
    assert result.answer_at(25) == "42"
    readers = [body for body in server.bodies("/steps") if body["reader"]]
    assert len(readers) == 3
    assert all(b["text"] == prompts.formatting().finish_text() for b in readers)


def test_budgets_that_an_early_stop_leaves_over_have_its_answer(server):
    server.board.script = lambda writing: "\\boxed{5}.\n\n"

    def body(s, team):
        return team.reason(100, stop=hogwild.boxed_answer, probes=[60, 100])

    outcome = reason(server, body)
    assert outcome.answer == "5"
    assert [(probe.budget, probe.answer) for probe in outcome.probes] == [(60, "5"), (100, "5")]


def test_a_hint_stands_in_the_history_from_its_pass_on(server):
    server.board.pause = 0.003

    def body(s, team):
        team.reason(40, hints=[(15, "try it mod 7")])
        return team.snapshot().steps

    steps = reason(server, body)
    (at,) = [step.index for step in steps if step.worker is None]
    assert steps[at].text == "\n\n**Hint from outside:** try it mod 7"
    assert 0 < at < len(steps) - 1


def test_a_step_in_conflict_is_dropped_and_written_again(server):
    server.board.pause = 0.003

    def script(writing: Writing) -> str:
        return "word " * 30 + ".\n\n" if writing.worker == 1 else paragraphs(writing)

    server.board.script = script

    def conflict(finished, live):
        return live.name == "Bob" and finished.number == 2

    def body(s, team):
        team.reason(60, conflict=conflict)
        return team.result("t", "p", answer=None, final_text=""), team["Bob"].text()

    result, bob = reason(server, body)
    (dropped,) = [step for step in result.steps if step.kind == "dropped"]
    assert dropped.name == "Bob" and dropped.text.startswith("word")
    assert bob.count("**Bob [1]:** ") == 1
    written = [step for step in result.steps if step.kind == "step" and step.name == "Bob"]
    assert [step.number for step in written] == list(range(1, len(written) + 1))


def test_the_transcript_says_who_wrote_what_and_when(server):
    def body(s, team):
        team.reason(40)
        s += team.finish() + sgl.gen("answer", max_tokens=8, stop="\n")
        s.sync()
        return team.result("t", "6 * 7?", answer=s["answer"], final_text=s["answer"]), (
            team.snapshot()
        )

    result, snapshot = reason(server, body)
    published = [step for step in result.steps if step.kind == "step"]
    assert [step.index for step in published] == [step.index for step in snapshot.steps]
    for step, other in zip(published, snapshot.steps, strict=True):
        assert (step.worker, step.number) == (other.worker, other.number)
        assert other.text.strip().startswith(step.fed.strip())
        assert step.output_tokens == step.end_pass - step.start_pass
    assert result.tokens == tuple(
        sum(step.output_tokens for step in published if step.worker == w) for w in (0, 1)
    )
    (reader,) = [step for step in result.steps if step.kind == "reader"]
    assert reader.text == "42}." and reader.fed == prompts.formatting().finish_text()
    assert result.finisher_passes == reader.output_tokens
    assert result.kv_tokens == snapshot.kv_tokens
    assert result.prompt_tokens == snapshot.prompt_tokens
    assert Result.from_json(result.to_json()) == result


def test_what_another_client_says_is_in_the_transcript(server):
    def body(s, team):
        team.reason(10)
        hogwild.Client(server.url).team(team.core.handle.name).say("Psst.")
        return team.result("t", "p", answer=None, final_text="")

    said = [step for step in reason(server, body).steps if step.kind == "said"]
    assert [(step.fed, step.worker) for step in said] == [("Psst.", None)]


def test_events_are_told_in_order(server):
    seen: list = []

    def body(s, team):
        end = team.on_event(seen.append)
        team.reason(20)
        end()
        team[0] += sgl.gen("more", max_tokens=3)
        team.sync()

    reason(server, body)
    for worker in (0, 1):
        own = [e for e in seen if getattr(e, "worker", None) == worker]
        # The step asked for ahead of the last one, which used the forwards up.
        own = [event for event in own if not isinstance(event, NotBegun)]
        kinds = [type(event) for event in own]
        assert kinds[0] is Started and kinds[-1] is Published
        assert kinds.count(Started) == kinds.count(Published)
        grown = "".join(event.text for event in own if isinstance(event, Grown))
        assert grown == "".join(e.reply.text for e in own if isinstance(e, Published))
    assert not any(isinstance(event, Dropped) for event in seen)


def test_reasoning_can_go_on_where_it_stopped(server):
    def body(s, team):
        team.reason(20)
        first = len(team.snapshot().steps)
        team.reason(20)
        return first, team.snapshot().steps

    first, steps = reason(server, body)
    assert len(steps) > first
    for name in ("Alice", "Bob"):
        own = [step for step in steps if step.name == name]
        assert [step.number for step in own] == list(range(1, len(own) + 1))
        assert all(f"**{name} [{step.number}]:** " in step.text for step in own)
        assert sum("I am" in step.text for step in own) == 1


@pytest.mark.parametrize("workers", [3, 5])
def test_larger_teams_reason_as_well(server, workers):
    names = prompts.worker_names(workers)
    outcome = reason(server, lambda s, team: team.reason(25), workers=names)
    assert outcome.reason == "budget"
    assert {body["worker"] for body in steps_of(server)} == set(range(workers))


@pytest.mark.filterwarnings("ignore:Error in stream_executor")
def test_a_failing_step_is_raised_and_the_team_closed(server):
    def refuse(path, body):
        if path.endswith("/steps") and body["worker"] == 1:
            raise Refused(400, "the step does not fit: 10 of 8 tokens")

    server.before = refuse
    with pytest.raises(BadRequest, match="10 of 8"):
        reason(server, lambda s, team: team.reason(30))
    wait_for(lambda: server.team.closed)


@pytest.mark.filterwarnings("ignore:Error in stream_executor")
def test_a_server_that_dies_while_workers_reason_is_an_error_and_not_a_hang(server):
    server.board.pause = 0.005
    threading.Timer(0.4, server.die).start()
    with pytest.raises(ServerGone):
        reason(server, lambda s, team: team.reason(100_000))


def test_a_team_closed_while_it_reasons_is_an_error_and_not_a_hang(server):
    server.board.pause = 0.005

    def body(s, team):
        threading.Timer(0.3, team.close).start()
        team.reason(100_000)

    with pytest.raises(TeamClosed):
        reason(server, body)


def test_a_failing_probe_is_raised(server):
    def refuse(path, body):
        if path.endswith("/steps") and body["reader"]:
            raise Refused(503, "no room for a reader", "no_space")

    server.before = refuse
    with pytest.raises(OutOfMemory, match="no room"):
        reason(server, lambda s, team: team.reason(30, probes=[10]))


def test_a_steps_random_stream_depends_on_the_seed_and_not_on_the_load():
    def streams(seed: int, load: int) -> dict[tuple[int, str], int]:
        with FakeServer() as server:
            stop = threading.Event()
            others = [threading.Thread(target=_busy, args=(server, stop)) for _ in range(load)]
            for other in others:
                other.start()
            team = f"/hogwild/teams/{reason(server, _reason_and_tell, seed=seed)}/steps"
            stop.set()
            for other in others:
                other.join()
            bodies = [body for path, body in server.requests if path == team]
            return {
                (body["worker"], body["text"].strip()[:14]): body["sampling_params"][
                    "sampling_seed"
                ]
                for body in bodies
            }

    alone, loaded, other = streams(11, 0), streams(11, 2), streams(12, 0)
    assert len(set(alone.values())) == len(alone)
    both = set(alone) & set(loaded)
    assert len(both) >= 10
    assert all(alone[step] == loaded[step] for step in both)
    assert not set(alone.values()) & set(other.values())


def _reason_and_tell(s, team) -> str:
    team.reason(60)
    return team.core.handle.name


def _busy(server, stop: threading.Event) -> None:
    client = hogwild.Client(server.url)
    while not stop.is_set():
        with client.open(prompt="other", workers=["A", "B", "C"]) as team:
            team.step(0, "x", {"max_new_tokens": 5})
