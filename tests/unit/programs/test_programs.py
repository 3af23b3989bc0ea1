"""All programs against a server with a scripted model."""

from __future__ import annotations

import re

import pytest

from hogwild_sgl import programs, prompts
from hogwild_sgl.driver.commands import FinishedStep, LiveText
from hogwild_sgl.errors import PatchNotActive
from hogwild_sgl.lang.endpoint import Endpoint
from hogwild_sgl.program.settings import Settings
from hogwild_sgl.programs.retry import conflicts
from hogwild_sgl.programs.skeleton_of_thought import points_of
from hogwild_sgl.transcript import Result
from tests.fake_server import FakeServer, Writing
from tests.fake_server.model import paragraphs

TEAMS = ("alice_bob", "team", "hint", "retry")
BASELINES = ("single", "self_consistency", "skeleton_of_thought", "text_rounds")


@pytest.fixture
def server():
    with FakeServer() as running:
        yield running


def solve(server, name: str, watch=None, **settings) -> Result:
    if name == "hint":
        settings.setdefault("hints", ((10, "try it mod 7"),))
    return programs.find(name).solve(
        "What is 6 * 7?", Settings(**settings), url=server.url, watch=watch
    )


def prompts_sent(server) -> list[str]:
    return [server.words.decode(body["input_ids"]) for body in server.bodies("/generate")]


def once_per_prompt(*answers: tuple[str, str]):
    """A script that answers by what the prompt contains; the last is for all others."""

    def script(writing: Writing) -> str:
        return next(text for key, text in answers if key in writing.fed)

    return script


@pytest.mark.parametrize("name", programs.NAMES)
def test_every_program_returns_the_shared_result_and_it_can_be_saved(server, name):
    result = solve(server, name, budget=40)
    assert (result.program, result.problem, result.answer) == (name, "What is 6 * 7?", "42")
    assert result.workers and result.steps
    assert result.budget == 40
    assert 0 < result.passes <= 44
    assert sum(result.tokens) == sum(
        step.output_tokens for step in result.steps if step.kind != "reader"
    )
    assert result.kv_tokens >= result.prompt_tokens > 0 or name in BASELINES
    assert result.settings["formatting"]["name"] == "maths-en"
    assert Result.from_json(result.to_json()) == result


@pytest.mark.parametrize("name", TEAMS)
def test_a_program_with_a_team_needs_the_patch(name):
    with FakeServer(patched=False) as server, pytest.raises(PatchNotActive):
        solve(server, name, budget=20)


@pytest.mark.parametrize("name", BASELINES)
def test_a_baseline_runs_on_any_sglang_server(name):
    with FakeServer(patched=False) as server:
        assert solve(server, name, budget=20).answer == "42"


@pytest.mark.parametrize("workers", [2, 3, 16])
def test_a_team_of_any_size_works_on_the_problem(server, workers):
    result = solve(server, "team", workers=workers, budget=15)
    assert result.workers == prompts.WORKER_NAMES[:workers]
    assert {s.worker for s in result.steps if s.kind == "step"} == set(range(workers))


def test_workers_can_have_other_names(server):
    result = solve(server, "team", workers=2, names=("Ada", "Emmy"), budget=15)
    assert any("**Ada [1]:** " in step.fed for step in result.steps)


def test_an_answer_in_a_finished_step_needs_no_finisher():
    with FakeServer(lambda writing: "So \\boxed{\\frac{1}{2}}.\n\n") as server:
        result = solve(server, "alice_bob", budget=100)
        assert (result.answer, result.stopped) == (r"\frac{1}{2}", "stop")
        assert result.finisher_passes == 0
        assert result.passes < 30
        late = solve(server, "alice_bob", budget=30, early_stop=False)
        assert late.stopped == "budget" and late.passes >= 30


def test_the_problems_own_box_is_no_answer(server):
    program = programs.find("team")
    result = program.solve("Is \\boxed{13} odd?", Settings(budget=12), url=server.url)
    assert result.answer == "42"
    assert result.stopped == "budget"


def test_probes_of_team_single_and_self_consistency_agree_with_the_budgets(server):
    for name in ("team", "single", "self_consistency"):
        result = solve(server, name, budget=40, probes=(10, 20, 40))
        assert [probe.budget for probe in result.probes] == [10, 20, 40], name
        assert result.answer_at(20) == "42", name


def test_a_probe_of_a_trace_that_has_answered_holds_the_text_with_all_its_boxes():
    def script(writing: Writing) -> str:
        asked = writing.fed.count("Question ")
        return (
            f"Question {asked + 1}: \\boxed{{{asked + 3}}}. And so on, and on, and on it goes. " * 9
        )

    with FakeServer(script) as server:
        result = solve(server, "single", budget=60, probes=(20, 40))
    trace = next(step.text for step in result.steps if step.kind == "step")
    for probe in result.probes:
        assert trace.startswith(probe.text) and probe.text.count("\\boxed{") == probe.budget // 20
        assert probe.tokens == 0


@pytest.mark.parametrize("name", ["skeleton_of_thought", "text_rounds"])
def test_a_program_that_cannot_be_probed_says_so(server, name):
    with pytest.raises(ValueError, match="once for each budget"):
        solve(server, name, budget=40, probes=(10,))


def test_the_hint_is_in_the_transcript_with_its_pass(server):
    server.board.pause = 0.003
    result = solve(server, "hint", budget=40, hints=((12, "try it mod 7"),))
    (said,) = [step for step in result.steps if step.kind == "said"]
    assert "try it mod 7" in said.fed
    assert 12 <= said.end_pass < 40
    assert result.settings["hints"] == [[12, "try it mod 7"]]


def test_what_is_typed_is_said_as_it_comes(server, monkeypatch):
    server.board.pause = 0.005
    monkeypatch.setattr("sys.stdin", iter(["\n", "try it mod 7\n", "and mod 11\n"]))
    result = solve(server, "hint", budget=60, hints=(), listen=True)
    said = [step.fed for step in result.steps if step.kind == "said"]
    assert [text.split()[-1] for text in said] == ["7", "11"]


def test_a_step_that_is_corrected_is_written_again():
    def script(writing: Writing) -> str:
        if writing.worker == 1:
            return "I multiply all of it out by hand now and that takes long. " * 3 + "\n\n"
        return f"Bob, that is wrong, number {writing.number}.\n\n"

    with FakeServer(script) as server:
        server.board.pause = 0.002
        result = solve(server, "retry", budget=60, check_every=0)
    dropped = [step for step in result.steps if step.kind == "dropped"]
    assert dropped and all(step.name == "Bob" for step in dropped)


def live(text: str) -> LiveText:
    return LiveText(1, "Bob", 1, 1, "**Bob [1]:** ", text)


def finished(text: str) -> FinishedStep:
    return FinishedStep(0, "Alice", 1, "", text, 9, "sentence")


WORK = "first I add the even numbers from two to twenty and then the odd ones"


@pytest.mark.parametrize(
    ("published", "writing", "expected"),
    [
        ("Bob, there is a mistake in your sum.", "I add", True),
        ("There is a mistake in my sum.", "I add", False),
        ("Bob, please go on.", "I add", False),
        (WORK.capitalize() + ".", WORK, True),
        ("Something else entirely, about primes.", WORK, False),
        ("Bob,这里不对。", "继续", True),
    ],
)
def test_a_conflict_is_a_correction_or_the_same_work(published, writing, expected):
    assert conflicts(finished(published), live(writing)) is expected


def test_single_asks_a_finisher_only_when_it_has_no_answer():
    answered = once_per_prompt(("Time is up", "1}.\n"), ("", "So \\boxed{42}."))
    with FakeServer(answered) as server:
        result = solve(server, "single", budget=50)
        assert (result.answer, result.finisher_passes) == ("42", 0)
        assert result.stopped == "finished"
    silent = once_per_prompt(("Time is up", "1}.\n"), ("", "I think and think "))
    with FakeServer(silent) as server:
        result = solve(server, "single", budget=3)
        assert result.answer == "1"
        assert [step.kind for step in result.steps] == ["step", "reader"]


def test_single_sends_the_solo_text_through_the_models_template(server):
    solve(server, "single", budget=10)
    assert prompts_sent(server)[0] == (
        f"<|system|>{prompts.formatting().solo}<|user|>What is 6 * 7?<|assistant|>"
    )


def answers_in_turn():
    """Traces that answer 7, 7, 8 in turn; 9 for a finisher that reads them all."""
    count = iter(range(100))

    def script(writing: Writing) -> str:
        if "--- Alice ---" in writing.fed:
            return "9}.\n"
        return "\\boxed{7}." if next(count) % 3 else "\\boxed{8}."

    return script


def test_self_consistency_lets_one_finisher_read_all_traces():
    with FakeServer(answers_in_turn()) as server:
        result = solve(server, "self_consistency", workers=5, budget=30, vote="finisher")
        judge = prompts_sent(server)[-1]
    assert all(f"--- {name} ---" in judge for name in result.workers)
    assert result.answer == "9" and result.finisher_passes > 0


def test_self_consistency_votes_without_a_finisher_over_all_traces():
    with FakeServer(answers_in_turn()) as server:
        result = solve(server, "self_consistency", workers=5, budget=30, vote="majority")
        sent = prompts_sent(server)
    assert result.answer == "7"
    assert sorted(result.settings["answers"]) == ["7", "7", "7", "8", "8"]
    assert len(sent) == 5 and result.finisher_passes == 0


def test_a_vote_counts_the_passes_of_the_longest_finisher_of_a_trace(server):
    result = solve(server, "self_consistency", workers=3, budget=4, vote="majority")
    readers = [step for step in result.steps if step.kind == "reader"]
    assert len(readers) == 3 and result.answer == "42"
    assert result.finisher_passes == max(step.output_tokens for step in readers)
    assert {step.start_pass for step in readers} == {4}


def test_traces_of_one_run_have_random_streams_of_their_own(server):
    solve(server, "self_consistency", workers=4, budget=10, seed=3)
    seeds = [b["sampling_params"]["sampling_seed"] for b in server.bodies("/generate")]
    assert len(set(seeds)) == len(seeds)
    before = len(server.requests)
    solve(server, "self_consistency", workers=4, budget=10, seed=3)
    again = [
        body["sampling_params"]["sampling_seed"]
        for path, body in server.requests[before:]
        if path == "/generate"
    ]
    assert sorted(again) == sorted(seeds)


PLAN = "1. Count the evens\n2. Count the odds\n3. **Add both**\nThat is all."


def plan_script(writing: Writing) -> str:
    if "Do not solve this yet" in writing.fed:
        return PLAN
    if "Work out only this part" in writing.fed:
        return "It is " + "so " * 5
    return "Together \\boxed{42}."


@pytest.mark.parametrize(("threads", "passes"), [(0, 1), (2, 2), (1, 3)])
def test_a_skeletons_parts_run_side_by_side_or_in_threads(threads, passes):
    with FakeServer(plan_script) as server:
        result = solve(server, "skeleton_of_thought", budget=200, threads=threads)
    assert result.settings["plan"] == ["Count the evens", "Count the odds", "Add both"]
    parts = [step for step in result.steps if "so so" in step.text]
    assert len(parts) == 3
    plan, merge = result.steps[0], result.steps[-1]
    longest = merge.start_pass - plan.end_pass
    assert longest == passes * parts[0].output_tokens
    assert result.answer == "42"
    assert len(result.workers) == (threads or 3)
    titles = [(step.name, step.text.startswith("It is so")) for step in result.steps]
    assert titles[0] == ("plan", False) and titles[-1] == ("merge", False)
    assert {name.split(" (")[0] for name, part in titles if part} == {"part 1", "part 2", "part 3"}
    for step in parts:
        assert step.name.endswith(f"({result.workers[step.worker]})")


def test_a_skeleton_keeps_to_its_budget():
    with FakeServer(plan_script) as server:
        result = solve(server, "skeleton_of_thought", budget=40, threads=1)
    assert result.passes <= 40


@pytest.mark.parametrize(
    ("plan", "points"),
    [
        (PLAN, ["Count the evens", "Count the odds", "Add both"]),
        ("1、先数偶数\n2、再数奇数", ["先数偶数", "再数奇数"]),
        ("- a\n- b\n- c", ["a", "b"]),
        ("No list at all.", ["No list at all."]),
        ("", ["?"]),
    ],
)
def test_a_plan_is_read_line_by_line(plan, points):
    assert points_of(plan, 3 if "Add" in plan else 2) == points


def test_agents_read_the_others_latest_texts_in_each_later_round():
    def script(writing: Writing) -> str:
        found = re.findall(r"text (\d)", writing.fed)
        return f"text {int(max(found)) + 1 if found else 1} "

    with FakeServer(script) as server:
        result = solve(server, "text_rounds", workers=3, rounds=2, budget=30)
        sent = prompts_sent(server)
    first = [p for p in sent if "Others have worked" not in p and "Several independent" not in p]
    second = [p for p in sent if "Others have worked" in p]
    assert (len(first), len(second)) == (3, 3)
    for prompt in second:
        assert prompt.count("--- ") == 2  # never one's own text
    assert [step.number for step in result.steps if step.kind == "step"] == [1] * 3 + [2] * 3
    judge = sent[-1]
    assert judge.count("text 2") == 3


@pytest.mark.parametrize("formatting", ["code-en", "open-zh", "maths-zh"])
def test_programs_work_with_other_formattings(formatting):
    chosen = prompts.builtin(formatting)

    def script(writing: Writing) -> str:
        if writing.worker is None:
            return {"code": "print(42)\n", "text": "Both.", "boxed": "42}.\n"}[chosen.answer]
        return paragraphs(writing)

    with FakeServer(script) as server:
        result = solve(server, "team", formatting=chosen, budget=12)
    assert result.answer.strip() in ("print(42)", "Both.", "42")


def test_watchers_see_the_steps_as_they_come(server):
    seen = []
    result = solve(server, "alice_bob", budget=20, watch=seen.append)
    published = [event for event in seen if type(event).__name__ == "Published"]
    assert len(published) == sum(step.kind == "step" for step in result.steps)


def test_one_backend_serves_many_runs_at_once(server):
    from concurrent.futures import ThreadPoolExecutor

    backend, program = Endpoint(server.url), programs.find("team")
    with ThreadPoolExecutor(4) as pool:
        results = list(
            pool.map(
                lambda i: program.solve(f"{i} + 1?", Settings(budget=10, seed=i), backend=backend),
                range(6),
            )
        )
    assert [result.problem for result in results] == [f"{i} + 1?" for i in range(6)]
    assert all(result.answer == "42" for result in results)


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        ({"budget": 0}, "budget"),
        ({"workers": 17}, "1 to 16"),
        ({"names": ("A", "A")}, "different names"),
        ({"top_p": 0.0}, "top_p"),
        ({"vote": "dice"}, "vote"),
        ({"check_who": "me"}, "check_who"),
        ({"probes": (2000,)}, "outside the budget"),
        ({"max_retries": -1}, "max_retries"),
    ],
)
def test_settings_that_make_no_sense_are_refused(settings, complaint):
    with pytest.raises(ValueError, match=complaint):
        Settings(**settings)


def test_an_unknown_program_lists_the_known_ones():
    with pytest.raises(ValueError, match="alice_bob"):
        programs.find("debate")


def test_an_empty_problem_and_a_hint_without_words_are_refused(server):
    with pytest.raises(ValueError, match="empty"):
        programs.find("single").solve("  ", Settings(), url=server.url)
    with pytest.raises(ValueError, match="no hint"):
        programs.find("hint").solve("x", Settings(), url=server.url)
    with pytest.raises(ValueError, match="two workers"):
        solve(server, "alice_bob", workers=3)
