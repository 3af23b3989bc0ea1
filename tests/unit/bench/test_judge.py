import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from typer.testing import CliRunner

from hogwild_sgl.bench.judge import __main__ as judge_module
from hogwild_sgl.bench.judge.__main__ import (
    Judge,
    JudgeScore,
    app,
    judge_run,
    read_score,
    read_scores,
)
from hogwild_sgl.bench.judge.rubrics import RUBRICS, render
from hogwild_sgl.bench.run.store import Store
from hogwild_sgl.errors import UserError
from tests.unit.bench.build import result, step

COLLABORATION = RUBRICS["collaboration"]


class Endpoint:
    """A chat endpoint on this machine that answers from a script."""

    def __init__(self, replies):
        self.requests = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self):
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                outer.requests.append((self.path, body, self.headers.get("Authorization")))
                status, content = replies(len(outer.requests), body)
                message = {"choices": [{"message": {"content": content}}]}
                data = json.dumps(message if status == 200 else {"error": content}).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(data)))
                self.send_header("Retry-After", "0")
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *_):
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/v1"
        self.thread = threading.Thread(target=self.server.serve_forever, args=(0.01,))

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.server.shutdown()
        self.thread.join()
        self.server.server_close()


@pytest.fixture
def folder(tmp_path):
    with Store(tmp_path, {"task": "limo"}) as store:
        for number in range(3):
            run = result(step(0, f"Text number {number}.", 0, 5), step(1, "Bob's text.", 0, 6))
            store.add({"unit": f"u{number}", "digest": "d", "result": json.loads(run.to_json())})
    return tmp_path


def test_every_run_is_scored_and_kept(folder):
    with Endpoint(lambda n, body: (200, f"They share. Score: {1 + n % 6}")) as endpoint:
        judge = Judge(endpoint.url, "m", "secret")
        progress = list(judge_run(folder, judge, COLLABORATION, concurrency=1))
        judge.close()
    assert [(done, total) for done, total, *_ in progress] == [(0, 3), (1, 3), (2, 3), (3, 3)]
    kept = read_scores(folder)
    assert [s.unit for s in kept] == ["u0", "u1", "u2"]
    assert [s.score for s in kept] == [2, 3, 4]
    path, body, key = endpoint.requests[0]
    assert path == "/v1/chat/completions" and key == "Bearer secret"
    assert body["model"] == "m" and body["temperature"] == 0


def test_a_second_judging_asks_nothing_again(folder):
    with Endpoint(lambda n, body: (200, "Score: 4")) as endpoint:
        judge = Judge(endpoint.url, "m")
        list(judge_run(folder, judge, COLLABORATION))
        asked = len(endpoint.requests)
        assert list(judge_run(folder, judge, COLLABORATION)) == [(3, 3, None, "")]
        assert len(endpoint.requests) == asked == 3
        # Another model and another rubric are other questions.
        list(judge_run(folder, Judge(endpoint.url, "other"), COLLABORATION, limit=1))
        list(judge_run(folder, judge, RUBRICS["answer"], limit=1))
        assert len(endpoint.requests) == 5


def test_a_score_cut_off_in_the_middle_is_asked_for_again(folder):
    with Endpoint(lambda n, body: (200, "Score: 4")) as endpoint:
        judge = Judge(endpoint.url, "m")
        list(judge_run(folder, judge, COLLABORATION, concurrency=1))
        path = folder / judge_module.SCORES
        path.write_bytes(path.read_bytes()[:-20])
        list(judge_run(folder, judge, COLLABORATION))
    assert sorted(s.unit for s in read_scores(folder)) == ["u0", "u1", "u2"]


def test_a_busy_endpoint_and_a_reply_without_a_score_are_asked_again():
    replies = [(429, "slow down"), (200, "I cannot say."), (200, "Well. **Score: 5**")]
    with Endpoint(lambda n, body: replies[n - 1]) as endpoint:
        judge = Judge(endpoint.url, "m")
        score, reasons = judge.ask([{"role": "user", "content": "x"}])
    assert score == 5 and reasons.startswith("Well.")
    assert endpoint.requests[2][1]["temperature"] > 0


def test_a_refused_key_is_reported_at_once(folder):
    with Endpoint(lambda n, body: (401, "no such key")) as endpoint:
        judge = Judge(endpoint.url, "m")
        with pytest.raises(UserError, match="HTTP 401"):
            judge.ask([{"role": "user", "content": "x"}])
        assert len(endpoint.requests) == 1


def test_a_judge_that_never_scores_leaves_nothing_behind(folder):
    with Endpoint(lambda n, body: (200, "Score: 9")) as endpoint:
        judge = Judge(endpoint.url, "m", attempts=2)
        progress = list(judge_run(folder, judge, COLLABORATION, limit=1))
    assert "no score in 2 attempts" in progress[-1][3]
    assert read_scores(folder) == []


@pytest.mark.parametrize(
    ("text", "score"),
    [
        ("Score: 3", 3),
        ("score: 2 at first, but in the end\nScore: 4", 4),
        ("**Score:** 6", 6),
        ("Score：5", 5),
        ("Score: 2.", 2),
        ("Score: 3/6", 3),
        ("Score: 7", None),
        ("Score: 35", None),
        ("Score: 4.5", None),
        ("four", None),
    ],
)
def test_the_last_whole_score_in_range_counts(text, score):
    assert read_score(text) == score


def test_the_judge_sees_steps_with_passes_but_neither_layout_nor_program():
    run = result(step(0, "I do the first half.", 0, 9), step(1, "And I the rest.", 0, 12, number=3))
    system, user = COLLABORATION.messages(run, 10_000)
    assert "Bob [3] (passes 0 to 12): And I the rest." in user["content"]
    assert run.problem in user["content"] and "Score: N" in system["content"]
    assert "combined" not in system["content"] + user["content"]


def test_a_long_transcript_loses_steps_in_the_middle_and_says_so():
    steps = [step(0, f"step {n} " + "x" * 90, n, n + 1) for n in range(20)]
    shown = render(steps, 1000)
    assert len(shown) < 1200 and "steps left out here" in shown
    assert "step 0 " in shown and "step 19 " in shown and "step 10 " not in shown


def test_a_score_out_of_range_is_refused():
    with pytest.raises(ValueError, match="from 1 to 6"):
        JudgeScore("u", "k", "answer", 1, "m", 7, "")


def test_the_command_judges_a_folder_and_reports(folder):
    with Endpoint(lambda n, body: (200, "Score: 4")) as endpoint:
        arguments = [str(folder), "--url", endpoint.url, "--model", "m"]
        outcome = CliRunner().invoke(app, arguments)
    assert outcome.exit_code == 0, outcome.output
    assert "3 new scores, mean 4.00, 0 failed" in outcome.output
