import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path

import pytest

from hogwild_sgl.bench.run.grading import given_at
from hogwild_sgl.bench.run.grid import Program, Setting, settings_of, units_of
from hogwild_sgl.bench.run.runner import Conditions, Runner
from hogwild_sgl.bench.run.servers import Servers, ServersGone
from hogwild_sgl.bench.run.store import RESULTS, Store, read_results
from hogwild_sgl.errors import BadRequest, OutOfMemory, PatchNotActive, ServerGone, UserError
from tests.unit.bench import killable
from tests.unit.bench.build import probe, result, step
from tests.unit.bench.fakes import SUMS, scripted

CONDITIONS = Conditions()
ROOT = Path(__file__).parents[3]


def run(folder, program, *, limit=4, seeds=1, servers=None, conditions=CONDITIONS, **hooks):
    examples = SUMS.load(None, limit)
    settings = settings_of([program], ["combined"], [2])
    units = units_of([program], settings, examples, seeds, [10, 20, 40])
    with Store(folder, {"task": "sums"}) as store:
        servers = servers or Servers(["http://server"], places=4)
        return Runner(SUMS, [program], conditions, store, servers, **hooks).run(units)


def test_every_problem_is_graded_at_every_budget(tmp_path):
    outcome = run(tmp_path, scripted(), limit=4)
    assert (outcome.total, outcome.before, outcome.done, outcome.complete) == (4, 0, 4, True)
    graded = {
        record["example"]: [score["value"] for score in record["scores"]]
        for record in read_results(tmp_path)
    }
    # "0 + 0" is answered with 0 from the start; other even numbers from 20, odd from 40 on.
    assert graded == {
        "row-00000": [1, 1, 1],
        "row-00001": [0, 0, 1],
        "row-00002": [0, 1, 1],
        "row-00003": [0, 0, 1],
    }


def test_a_program_without_probes_is_run_once_for_each_budget(tmp_path):
    log = tmp_path / "log"
    run(tmp_path / "run", scripted(log=log, probes=False), limit=2)
    budgets = Counter(line.split(" | ")[2] for line in log.read_text().splitlines())
    assert budgets == {"(10,)": 2, "(20,)": 2, "(40,)": 2}


def test_each_unit_has_its_own_seed_and_the_same_again(tmp_path):
    seeds = []
    for name in ("one", "two"):
        log = tmp_path / f"{name}.log"
        run(tmp_path / name, scripted(log=log), limit=3, seeds=2)
        seeds.append(sorted(line.split(" | ")[3] for line in log.read_text().splitlines()))
    assert seeds[0] == seeds[1]
    assert len(set(seeds[0])) == 6


def test_many_problems_run_at_once_and_never_more_than_there_are_places(tmp_path):
    running, most = 0, 0
    lock = threading.Lock()
    full = threading.Barrier(4)

    def meet(job):
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        full.wait(timeout=20)  # all four places are in use at the same time
        with lock:
            running -= 1

    run(tmp_path, scripted(fail=meet), limit=8, servers=Servers(["http://a", "http://b"], 2))
    assert most == 4


def test_both_servers_get_work(tmp_path):
    run(tmp_path, scripted(seconds=0.01), limit=12, servers=Servers(["http://a", "http://b"], 1))
    assert {record["server"] for record in read_results(tmp_path)} == {"http://a", "http://b"}


def test_a_killed_run_is_resumed_without_losing_or_repeating_a_problem(tmp_path):
    folder, log = tmp_path / "run", tmp_path / "log"
    command = [sys.executable, "-m", "tests.unit.bench.killable", str(folder), str(log)]
    expected = {unit.key for unit in killable.units()}
    kept_before = set()
    for kills in range(3):
        process = subprocess.Popen([*command, "0.03"], cwd=ROOT)
        wanted = len(kept_before) + 8
        try:
            while len(_lines(folder / RESULTS)) < wanted:
                assert process.poll() is None, "the run ended before it could be killed"
                time.sleep(0.005)
        finally:
            os.kill(process.pid, signal.SIGKILL)
            process.wait()
        assert process.returncode == -signal.SIGKILL
        kept_before = {record["unit"] for record in read_results(folder)}
        assert wanted <= len(kept_before) < len(expected), kills
    done = subprocess.run([*command, "0"], cwd=ROOT, capture_output=True, text=True, check=True)
    before, now = len(kept_before), len(expected) - len(kept_before)
    assert f"{len(expected)} runs: {before} done before, {now} now, 0 failed." in done.stderr
    units = [record["unit"] for record in read_results(folder)]
    assert Counter(units) == dict.fromkeys(expected, 1)
    # What was kept was not run again: only what was under way when it was killed.
    runs = Counter(log.read_text().splitlines())
    again = sum(count - 1 for count in runs.values())
    assert again <= 3 * 4 and len(runs) == len(expected)


def test_an_interrupted_run_reports_what_is_there_and_leaves_nothing_running(tmp_path):
    folder = tmp_path / "run"
    command = [
        sys.executable,
        "-m",
        "tests.unit.bench.killable",
        str(folder),
        str(tmp_path / "log"),
    ]
    process = subprocess.Popen([*command, "0.2"], cwd=ROOT, stderr=subprocess.PIPE, text=True)
    try:
        while len(_lines(folder / RESULTS)) < 4:
            assert process.poll() is None
            time.sleep(0.01)
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=30)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 130
    assert "Stopped. The same command goes on from here." in said
    assert "**not finished**" in (folder / "report.md").read_text()


def _lines(path):
    return path.read_bytes().splitlines() if path.exists() else []


def test_a_half_written_last_line_is_dropped_and_its_problem_run_again(tmp_path):
    run(tmp_path, scripted(), limit=3)
    path = tmp_path / RESULTS
    whole = path.read_bytes()
    path.write_bytes(whole[:-25])
    outcome = run(tmp_path, scripted(), limit=3)
    assert (outcome.before, outcome.done) == (2, 1)
    assert len({record["unit"] for record in read_results(tmp_path)}) == 3
    assert path.read_bytes().count(b"\n") == 3


def test_a_finished_run_starts_nothing(tmp_path):
    run(tmp_path, scripted(), limit=3)

    def never(job):
        raise AssertionError("this was done already")

    outcome = run(tmp_path, scripted(fail=never), limit=3)
    assert (outcome.before, outcome.done, outcome.complete) == (3, 0, True)


def test_a_run_can_be_extended(tmp_path):
    run(tmp_path, scripted(), limit=2)
    outcome = run(tmp_path, scripted(), limit=4, seeds=2)
    assert (outcome.before, outcome.done) == (2, 6)


def test_other_settings_do_not_mix_with_a_run(tmp_path):
    with Store(tmp_path, {"task": "sums", "budgets": [10]}):
        pass
    with pytest.raises(UserError, match=r"budgets: was \[10\], is \[20\]"):
        Store(tmp_path, {"task": "sums", "budgets": [20]})


def test_changed_data_are_noticed(tmp_path):
    with Store(tmp_path, {}) as store:
        store.add({"unit": "u", "digest": "one"})
        assert store.is_done("u", "one")
        with pytest.raises(UserError, match="has changed"):
            store.is_done("u", "two")


def test_two_processes_cannot_write_to_one_folder(tmp_path):
    with Store(tmp_path, {}):
        with pytest.raises(UserError, match="Another process"):
            Store(tmp_path, {})
    Store(tmp_path, {}).close()


def test_a_unit_is_never_kept_twice(tmp_path):
    with Store(tmp_path, {}) as store:
        store.add({"unit": "u", "digest": "d"})
        with pytest.raises(ValueError, match="already"):
            store.add({"unit": "u", "digest": "d"})


def test_a_damaged_line_is_named(tmp_path):
    run(tmp_path, scripted(), limit=2)
    path = tmp_path / RESULTS
    first, second = path.read_text().splitlines()
    path.write_text(first[:50] + "\n" + second + "\n")
    with pytest.raises(UserError, match="line 1 is damaged"):
        list(read_results(tmp_path))


def test_a_failing_problem_is_reported_and_tried_again_next_time(tmp_path):
    def refuse_odd(job):
        if "1 + 1" in job.problem:
            raise BadRequest("too long", status=400)

    failures = []
    outcome = run(tmp_path, scripted(fail=refuse_odd), limit=3, failed=failures.append)
    assert (outcome.done, outcome.failed, outcome.complete) == (2, 1, False)
    assert failures[0]["error"] == "BadRequest: too long"
    assert "too long" in (tmp_path / "failures.jsonl").read_text()
    outcome = run(tmp_path, scripted(), limit=3)
    assert (outcome.before, outcome.done) == (2, 1)


def test_a_full_server_is_tried_again_and_given_up_after_three_times(tmp_path):
    tries = Counter()

    def full(job):
        tries[job.problem] += 1
        if "0 + 0" in job.problem or tries[job.problem] < 2:
            raise OutOfMemory("no room", status=503)

    outcome = run(tmp_path, scripted(fail=full), limit=2)
    assert (outcome.done, outcome.failed) == (1, 1)
    assert sorted(tries.values()) == [2, 3]


def test_a_server_that_goes_away_loses_no_problem(tmp_path):
    def gone(job):
        if job.url == "http://bad":
            raise ServerGone("nobody there")

    told = []
    servers = Servers(["http://good", "http://bad"], places=2, tell=told.append)
    outcome = run(tmp_path, scripted(fail=gone), limit=8, servers=servers)
    assert (outcome.done, outcome.failed) == (8, 0)
    assert [line.split(".")[0] for line in told] == ["http://bad does not answer"]
    assert {record["server"] for record in read_results(tmp_path)} == {"http://good"}


def test_without_any_server_the_run_ends_with_what_to_do(tmp_path):
    def gone(job):
        raise ServerGone("nobody there")

    servers = Servers(["http://bad"], places=2, patience=0.3)
    with pytest.raises(ServersGone, match="nobody there"):
        run(tmp_path, scripted(fail=gone), limit=4, servers=servers)


def test_a_server_without_the_patch_ends_the_run_at_once(tmp_path):
    calls = []

    def plain(job):
        calls.append(job)
        raise PatchNotActive("plain SGLang", status=404)

    with pytest.raises(PatchNotActive):
        run(tmp_path, scripted(fail=plain), limit=12, servers=Servers(["http://x"], 1))
    assert len(calls) == 1


def test_a_run_in_which_everything_fails_is_stopped(tmp_path):
    def broken(job):
        raise RuntimeError("a bug in the program")

    conditions = Conditions(max_failures=3)
    with pytest.raises(UserError, match="More than 3 problems failed.*a bug in the program"):
        run(tmp_path, scripted(fail=broken), limit=12, conditions=conditions)


def test_a_stopped_run_starts_nothing_more(tmp_path):
    started, go_on = threading.Event(), threading.Event()
    jobs = []

    def wait(job):
        jobs.append(job)
        started.set()
        assert go_on.wait(timeout=20)

    program = scripted(fail=wait)
    examples = SUMS.load(None, 4)
    units = units_of([program], settings_of([program], ["combined"], [2]), examples, 1, [10])
    with Store(tmp_path, {}) as store:
        runner = Runner(SUMS, [program], CONDITIONS, store, Servers(["http://x"], 1))
        thread = threading.Thread(target=runner.run, args=(units,))
        thread.start()
        assert started.wait(timeout=20)
        runner.stop()
        go_on.set()
        thread.join(timeout=20)
    assert not thread.is_alive() and len(jobs) == 1


def test_the_answer_at_a_budget_is_what_was_read_then():
    run = result(step(0, "x", 0, 100), probes=(probe(10, "3"), probe(20, None, "?")), budget=40)
    assert given_at(run, 10).answer == "3"
    assert given_at(run, 20).answer is None
    assert given_at(run, 40).answer == "5"


def test_after_an_early_stop_the_final_answer_holds_for_all_later_budgets():
    run = result(step(0, "x", 0, 12), probes=(probe(10, "3"),), passes=12, budget=40)
    assert given_at(run, 20).answer == given_at(run, 40).answer == "5"


def test_an_answer_that_was_never_read_is_not_made_up():
    run = result(step(0, "x", 0, 40), passes=40, budget=40)
    with pytest.raises(ValueError, match="not at 20"):
        given_at(run, 20)


def test_the_grid_has_every_combination_that_exists_once():
    programs = [
        scripted(name="team"),
        scripted(name="single", fewest=1, most=1, layouts=False),
        scripted(name="pair", fewest=2, most=2),
    ]
    settings = settings_of(programs, ["combined", "independent"], [2, 4])
    assert settings == [
        Setting("team", "combined", 2),
        Setting("team", "combined", 4),
        Setting("team", "independent", 2),
        Setting("team", "independent", 4),
        Setting("single", None, 1),
        Setting("pair", "combined", 2),
        Setting("pair", "independent", 2),
    ]
    assert [s.label for s in settings[:2]] == ["team combined x2", "team combined x4"]


def test_a_program_for_which_no_team_size_fits_is_refused():
    with pytest.raises(UserError, match="works with 2 to 16"):
        settings_of([scripted(name="team")], ["combined"], [1])


@pytest.mark.parametrize("bad", [[], [0], [-5, 10]])
def test_budgets_that_make_no_sense_are_refused(bad):
    with pytest.raises(UserError, match="positive"):
        units_of([scripted()], [], [], 1, bad)


def test_a_program_with_impossible_team_sizes_is_refused():
    with pytest.raises(ValueError, match="workers"):
        Program("x", "y", lambda job: None, fewest=3, most=2)


def test_a_server_that_failed_is_left_alone_and_then_tried_with_one_problem():
    now = [0.0]
    servers = Servers(["http://a"], places=4, clock=lambda: now[0])
    stop = threading.Event()
    assert servers.acquire(stop) == "http://a"
    servers.release("http://a", "broken")
    stop.set()
    assert servers.acquire(stop) is None  # not before its pause is over
    stop.clear()
    now[0] = 1.0
    assert servers.acquire(stop) == "http://a"
    assert servers._best(now[0]) is None  # one at a time until it works again
    servers.release("http://a")
    assert servers._best(now[0]) == "http://a"
