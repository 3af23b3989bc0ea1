import os
import signal
import socket
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path

import pytest

from hogwild_sgl.bench.sandbox import (
    Limits,
    Outcome,
    SandboxUnavailable,
    barriers,
    landlock,
    run,
    seccomp,
)

QUICK = Limits(seconds=10)


def outcome(code: str, stdin: str = "", **options) -> Outcome:
    return run(textwrap.dedent(code), stdin, **{"limits": QUICK, **options})


def test_a_program_reads_its_input_and_prints():
    result = outcome("a, b = map(int, input().split())\nprint(a + b)", "3 4\n")
    assert (result.outcome, result.stdout) == ("ok", "7\n")


def test_usual_modules_are_there_without_an_import_and_built_in_names_keep_their_meaning():
    result = outcome(
        """
        def best(a: List[int]) -> int:
            return heapq.nlargest(1, a)[0] + gcd(12, 18) + pow(2, 10, 7)
        print(best([3, 9]), Counter("aab").most_common(1), deque([1]))
        """
    )
    assert result.stdout == "17 [('a', 2)] deque([1])\n", result.detail


def test_a_function_gets_its_arguments_and_its_result_is_not_mixed_with_prints():
    code = """
        class Solution:
            def add(self, a: List[int], b: int) -> List[int]:
                print("noise")
                return [x + b for x in a]
        """
    result = outcome(code, "[1, 2]\n10", function="add")
    assert (result.outcome, result.stdout) == ("ok", "[11, 12]")
    assert "noise" in result.detail
    assert outcome("def twice(x): return 2 * x", "21", function="twice").stdout == "42"


def test_an_exception_is_an_error_with_its_message():
    result = outcome("print('before')\nraise ValueError('broken')")
    assert result.outcome == "error"
    assert result.stdout == "before\n"
    assert result.detail.endswith("ValueError: broken")


def test_a_missing_function_is_an_error():
    assert outcome("x = 1", "1", function="solve").outcome == "error"


def test_a_deliberate_exit_is_not_an_error():
    assert outcome("import sys\nprint(1)\nsys.exit()").outcome == "ok"
    assert outcome("import sys\nsys.exit(3)").outcome == "error"


def test_a_busy_program_is_stopped_at_its_time():
    result = outcome("while True: pass", limits=Limits(seconds=1))
    assert result.outcome == "time"


def test_a_sleeping_program_that_ignores_signals_is_stopped_at_its_time():
    code = """
        import signal, time
        for s in (signal.SIGTERM, signal.SIGINT, signal.SIGALRM):
            signal.signal(s, signal.SIG_IGN)
        time.sleep(60)
        """
    assert outcome(code, limits=Limits(seconds=1)).outcome == "time"


def test_memory_is_limited():
    limits = Limits(seconds=10, memory_bytes=256 << 20)
    assert outcome("x = bytearray(512 << 20)", limits=limits).outcome == "memory"
    assert outcome("x = bytearray(32 << 20)\nprint(len(x))", limits=limits).outcome == "ok"


def test_the_limits_cannot_be_raised_again():
    code = """
        import resource
        print(resource.getrlimit(resource.RLIMIT_AS)[1] < 5 << 30)
        try:
            resource.setrlimit(resource.RLIMIT_AS, (-1, -1))
        except (PermissionError, ValueError) as error:
            print(type(error).__name__)
        """
    result = outcome(code)
    assert result.outcome == "ok", result.detail
    assert result.stdout.startswith("True\n") and "Error" in result.stdout


def test_output_is_limited():
    code = "while True: print('x' * 10000)"
    result = outcome(code, limits=Limits(seconds=10, output_bytes=100_000))
    assert result.outcome == "output"
    assert len(result.stdout) <= 100_000


def test_there_is_no_network_not_even_on_the_own_machine():
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        reachable = f"""
            import socket
            socket.create_connection(("127.0.0.1", {port}), timeout=2)
            print("connected")
            """
        result = outcome(reachable)
        assert result.outcome == "error"
        assert "PermissionError" in result.detail
        server.settimeout(0.2)
        with pytest.raises(TimeoutError):
            server.accept()
        # The same lines do connect outside the sandbox.
        subprocess.run([sys.executable, "-c", textwrap.dedent(reachable)], check=True, timeout=20)


@pytest.mark.parametrize(
    "family", ["socket.AF_INET", "socket.AF_INET6", "socket.AF_UNIX", "socket.AF_NETLINK"]
)
def test_no_kind_of_socket_can_be_made(family):
    result = outcome(f"import socket\nsocket.socket({family}, socket.SOCK_DGRAM)")
    assert result.outcome == "error" and "PermissionError" in result.detail


@pytest.mark.parametrize(
    "code",
    [
        "import subprocess\nsubprocess.run(['/bin/true'])",
        "import os\nos.fork()",
        "import os\nos.execv('/bin/true', ['true'])",
        "import os\nos.system('true') == 0 or exit(1)",
        "import os\nos.posix_spawn('/bin/true', ['true'], {})",
        f"import os\nos.kill({os.getpid()}, 0)",
        "import ctypes\nctypes.CDLL(None).ptrace(0, 0, 0, 0) == 0 or exit(1)",
    ],
)
def test_no_process_can_be_started_or_reached(code):
    assert outcome(code).outcome == "error"


def test_threads_still_work():
    code = """
        import threading
        done = []
        t = threading.Thread(target=lambda: done.append(7))
        t.start(); t.join()
        print(done)
        """
    result = outcome(code)
    assert result.stdout == "[7]\n", result.detail


def test_files_outside_its_folder_can_be_neither_read_nor_written(tmp_path):
    assert landlock.version() > 0, "this machine's kernel has no Landlock"
    secret = tmp_path / "gold.jsonl"
    secret.write_text("expected output")
    result = outcome(f"print(open({str(secret)!r}).read())")
    assert result.outcome == "error" and "expected output" not in result.stdout
    result = outcome(f"open({str(tmp_path / 'new')!r}, 'w').write('x')")
    assert result.outcome == "error" and not (tmp_path / "new").exists()
    assert outcome("import os\nos.listdir('/root')").outcome == "error"


def test_its_own_folder_is_empty_writable_and_gone_afterwards():
    code = """
        import os
        print(os.listdir("."))
        open("note", "w").write("kept")
        print(open("note").read(), os.getcwd())
        """
    result = outcome(code)
    listing, note = result.stdout.splitlines()
    assert listing == "['solution.py']"
    kept, folder = note.split(" ")
    assert kept == "kept" and not Path(folder).exists()


def test_the_environment_is_not_handed_on(monkeypatch):
    monkeypatch.setenv("SOME_API_KEY", "secret")
    result = outcome("import os\nprint(os.environ.get('SOME_API_KEY'), sorted(os.environ))")
    assert result.stdout.startswith("None "), result.detail
    assert "SOME" not in result.stdout


def test_a_program_dies_with_the_process_that_runs_it():
    parent = subprocess.Popen(
        [
            sys.executable,
            "-c",
            "from bench.sandbox import Limits, run\n"
            "run('import time\\nwhile True: time.sleep(1)', '', limits=Limits(seconds=300))",
        ],
        cwd=Path(__file__).parents[3],
    )
    try:
        child = _wait_for_child(parent.pid)
        os.kill(parent.pid, signal.SIGKILL)
        parent.wait()
        for _ in range(200):
            if not _alive(child):
                break
            time.sleep(0.05)
        assert not _alive(child)
    finally:
        parent.kill()
        parent.wait()


def _alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


def _wait_for_child(pid: int) -> int:
    for _ in range(400):
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        for child in map(int, children):
            # It has given up its rights: a filter is on.
            if "Seccomp:\t2" in Path(f"/proc/{child}/status").read_text():
                return child
        time.sleep(0.05)
    raise AssertionError("the sandboxed program never started")


def test_programs_run_from_several_threads_at_once():
    results: dict[int, str] = {}

    def one(number: int) -> None:
        results[number] = outcome("print(int(input()) ** 2)", str(number)).stdout

    threads = [threading.Thread(target=one, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == {0: "0\n", 1: "1\n", 2: "4\n", 3: "9\n"}


def test_where_the_network_cannot_be_barred_nothing_is_run(monkeypatch):
    monkeypatch.setattr(seccomp.platform, "system", lambda: "Darwin")
    with pytest.raises(SandboxUnavailable, match="Linux on x86_64"):
        outcome("print(1)")
    assert barriers()["network"].startswith("none")


def test_both_architectures_have_a_filter_that_ends_in_allow():
    for machine in ("x86_64", "aarch64"):
        code = seccomp.program(machine, pid=1234)
        assert len(code) % 8 == 0 and len(code) // 8 <= 4096
        assert code[-8:] == b"\x06\x00\x00\x00" + (0x7FFF0000).to_bytes(4, "little")


@pytest.mark.parametrize(
    "bad", [{"seconds": 0}, {"seconds": float("inf")}, {"memory_bytes": 1000}, {"output_bytes": 0}]
)
def test_limits_that_make_no_sense_are_refused(bad):
    with pytest.raises(ValueError):
        Limits(**bad)
