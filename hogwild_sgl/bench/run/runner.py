"""Runs many units at a time over one or several servers, and keeps each result at once."""

from __future__ import annotations

import threading
import traceback
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from hogwild_sgl.bench.run.grading import grade, record_of
from hogwild_sgl.bench.run.grid import Job, Program, Unit
from hogwild_sgl.bench.run.servers import Servers
from hogwild_sgl.bench.run.store import Store
from hogwild_sgl.bench.sandbox import SandboxUnavailable
from hogwild_sgl.bench.suite.task import Task
from hogwild_sgl.errors import HogwildError, PatchNotActive, ServerGone, UserError

# Refusals that may be due to what else the server was doing; all others are final.
_ATTEMPTS = 3


@dataclass(frozen=True)
class Conditions:
    """What is the same for all units of a run. options: see `grid.Job`.

    max_failures: a run with more failed units is stopped.
    """

    master_seed: int = 0
    options: Mapping[str, Any] = field(default_factory=dict)
    max_failures: int = 20


@dataclass
class Outcome:
    """How a run went: units in all, done before it began, done now, failed."""

    total: int
    before: int
    done: int = 0
    failed: int = 0

    @property
    def complete(self) -> bool:
        return self.before + self.done == self.total


class Runner:
    """See the module. ``finished`` is called with each new record, ``failed`` with each
    failure, from the thread that ran the unit."""

    def __init__(
        self,
        task: Task,
        programs: Sequence[Program],
        conditions: Conditions,
        store: Store,
        servers: Servers,
        finished: Callable[[Mapping[str, Any]], None] = lambda record: None,
        failed: Callable[[Mapping[str, Any]], None] = lambda record: None,
    ) -> None:
        self._task = task
        self._programs = {program.name: program for program in programs}
        self._conditions, self._store, self._servers = conditions, store, servers
        self._finished, self._failed = finished, failed
        self._queue: deque[tuple[Unit, int]] = deque()
        self._pending = 0
        self._change = threading.Condition()
        self._stop = threading.Event()
        self._fatal: BaseException | None = None

    def stop(self) -> None:
        """Starts nothing more and drops what still comes in; what is done stays done."""
        self._stop.set()

    def run(self, units: Sequence[Unit]) -> Outcome:
        """Runs the units that have no result yet; returns when all are done or failed.

        Raises what makes going on pointless: no server left, a server without the patch, a
        sandbox that does not hold, more than ``max_failures`` failures. On those, and on
        ``KeyboardInterrupt``, programs that are running are left behind: end the process.
        """
        todo = [u for u in units if not self._store.is_done(u.key, u.example.digest)]
        outcome = Outcome(len(units), len(units) - len(todo))
        self._queue = deque((unit, 1) for unit in todo)
        self._pending = len(todo)
        threads = [
            threading.Thread(target=self._work, args=(outcome,), name=f"unit-{n}", daemon=True)
            for n in range(min(self._servers.capacity, len(todo)))
        ]
        for thread in threads:
            thread.start()
        try:
            for thread in threads:
                # In slices, so that Ctrl-C is noticed.
                while thread.is_alive():
                    thread.join(0.2)
        except BaseException:
            self.stop()
            raise
        if self._fatal is not None:
            raise self._fatal
        return outcome

    def _work(self, outcome: Outcome) -> None:
        try:
            while (item := self._take()) is not None:
                self._attempt(*item, outcome)
        except BaseException as error:
            self._fatal = self._fatal or error
            self.stop()

    def _take(self) -> tuple[Unit, int] | None:
        with self._change:
            while not self._stop.is_set() and self._pending:
                if self._queue:
                    return self._queue.popleft()
                # Others are at the last units, and may give one back.
                self._change.wait(timeout=0.2)
        return None

    def _attempt(self, unit: Unit, attempt: int, outcome: Outcome) -> None:
        url = self._servers.acquire(self._stop)
        if url is None:
            return
        problem: str | None = None
        try:
            result = self._programs[unit.setting.program].run(self._job(unit, url))
        except ServerGone as error:
            problem = str(error)
            self._give_back(unit, attempt)
            return
        except PatchNotActive:
            raise
        except Exception as error:
            if self._stop.is_set():
                return
            if isinstance(error, HogwildError) and error.status != 400 and attempt < _ATTEMPTS:
                self._give_back(unit, attempt + 1)
            else:
                self._fail(unit, url, error, outcome)
            return
        finally:
            self._servers.release(url, problem)
        try:
            record = record_of(unit, result, grade(self._task, unit, result), url)
        except SandboxUnavailable:
            raise
        except Exception as error:
            self._fail(unit, url, error, outcome)
            return
        self._store.add(record)
        with self._change:
            outcome.done += 1
            self._settle()
        self._finished(record)

    def _job(self, unit: Unit, url: str) -> Job:
        conditions = self._conditions
        return Job(
            url=url,
            problem=unit.example.problem,
            workers=unit.setting.workers,
            layout=unit.setting.layout,
            budgets=unit.budgets,
            seed=unit.stream_seed(conditions.master_seed, self._task.name),
            options=conditions.options,
        )

    def _give_back(self, unit: Unit, attempt: int) -> None:
        with self._change:
            self._queue.append((unit, attempt))
            self._change.notify()

    def _settle(self) -> None:
        self._pending -= 1
        self._change.notify_all()

    def _fail(self, unit: Unit, url: str, error: Exception, outcome: Outcome) -> None:
        record = {
            "unit": unit.key,
            "server": url,
            "error": f"{type(error).__name__}: {error}",
            "trace": traceback.format_exception(error)[-3:],
        }
        self._store.add_failure(record)
        with self._change:
            outcome.failed += 1
            too_many = outcome.failed > self._conditions.max_failures
            self._settle()
        self._failed(record)
        if too_many:
            raise UserError(
                f"More than {self._conditions.max_failures} problems failed; the last with "
                f"{record['error']}",
                f"See {self._store.folder}/failures.jsonl. Running the same command again tries "
                "the failed ones once more.",
            )
