"""The driver of a team: who writes what next, and when it is over. No I/O, no threads.

Whoever runs it (the DSL, a loop in the server, a benchmark) asks :meth:`Driver.poll` for
commands, carries them out, and tells the driver what happened:

    driver = Driver(rules)
    while not over:
        for command in driver.poll(): ...        # Write, ReadAnswer, SayHint, AbortStep, Done
        driver.started(...) / progressed(...) / published(...) / dropped(...)

Steps. A step is fed the separator (unless the worker carries a blank line from its last
step, which then comes first), the step prefix, on the first step an opener, and after a
`steer` its text; then the worker generates.

Budget. It is counted in the team's sequential forward passes, not in tokens. The driver
knows them from each step's record and, between records, from the tokens a live step has
yielded since it began (one token is one pass). No step is given more new tokens than
there are passes left.

Redundancy check. Every so many generated tokens, summed over the workers, one is due. It
is put to one worker, drawn from the seed, at the start of that worker's next step: the
question is fed after the step prefix and the worker simply goes on writing. So the check
costs no forward pass of its own, the others read question and answer, and the answer is
the way the generated text begins: yes, no, or unclear. (Section 3.3 of the paper.
Scoring "yes" against "no" with readers would always give an answer, but stops the worker
for a round trip and puts a word into its mouth.)

Determinism. Draws depend on the seed and on how many draws came before, nothing else.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from hogwild_sgl import seeds
from hogwild_sgl.commands import (
    AbortStep,
    CheckRule,
    Command,
    Done,
    FinishedStep,
    Live,
    LiveText,
    ReadAnswer,
    Rules,
    SayHint,
    WorkerNote,
    WorkerStart,
    Write,
)
from hogwild_sgl.transcript import Check

# Drops of one step that somebody else may cause before the driver gives up.
MAX_DROPS = 8
# After these the worker's text is over: it ended its turn, or its view is full.
RETIRING = frozenset({"eos", "context"})


def step_seed(seed: int, worker: int, number: int, attempt: int) -> int:
    """SGLang's ``sampling_seed`` for one attempt at one step of a worker."""
    return seeds.sampling_seed(seed, "worker", worker, "step", number, attempt)


class Driver:
    """See the module. ``passes``: the team's forwards when the driver takes over."""

    def __init__(
        self, rules: Rules, starts: Sequence[WorkerStart] | None = None, *, passes: int = 0
    ) -> None:
        starts = starts or [WorkerStart()] * len(rules.workers)
        if len(starts) != len(rules.workers):
            raise ValueError(f"{len(starts)} starts for {len(rules.workers)} workers")
        self.rules = rules
        self.tokens = 0
        self.checks: list[Check] = []
        self._notes = [WorkerNote(s.steps, s.separated, first=s.steps == 0) for s in starts]
        self._began = self._clock = passes
        self._check = rules.check
        self._next_check = rules.check.every if rules.check else 0
        self._draws = 0
        self._probes = sorted(set(rules.probe_at), reverse=True)
        self._hints = sorted(rules.hints, reverse=True)
        self._aborts: list[int] = []
        self._stopped: Done | None = None
        self._over = False

    @property
    def passes(self) -> int:
        """Passes used since the driver took over, as far as it has been told."""
        return self._clock - self._began

    @property
    def left(self) -> int:
        return max(0, self.rules.budget - self.passes)

    @property
    def unprobed(self) -> tuple[int, ...]:
        """Budgets at which the answer was to be read, and that have not been reached."""
        return tuple(reversed(self._probes))

    @property
    def live(self) -> tuple[int, ...]:
        """Workers with a live step."""
        return tuple(i for i, note in enumerate(self._notes) if note.live)

    def poll(self) -> list[Command]:
        """What is to be done now. Each command is given once; Done is the last."""
        if self._over:
            return []
        commands: list[Command] = [AbortStep(worker) for worker in self._take_aborts()]
        commands += self._due_hints()
        commands += self._due_probes()
        if self._stopped is None:
            commands += self._writes()
            if not self.live:
                self._stopped = Done("budget" if self.left == 0 else "workers_ended")
        if self._stopped is not None:
            self._over = True
            commands.append(self._stopped)
        return commands

    def started(self, worker: int, passes: int) -> None:
        """The step of the last Write has been admitted; the team had used ``passes``."""
        live = self._live(worker)
        live.start = max(live.start, passes)
        self._advance(passes)

    def progressed(self, worker: int, text: str, tokens: int) -> None:
        """The live step grew by ``text``, ``tokens`` tokens long."""
        live = self._live(worker)
        live.text += text
        live.tokens += tokens
        self._count(tokens)
        self._advance(live.start + live.tokens)

    def published(
        self, worker: int, *, text: str, output_tokens: int, passes: int, finish: str
    ) -> list[Check]:
        """The live step is published: its whole generated text, the team's forwards now,
        and why it ended. Returns the redundancy check that it answered, if any; call
        :meth:`steer` or :meth:`set_check` before the next poll to act on it."""
        note, live = self._notes[worker], self._live(worker)
        self._count(output_tokens - live.tokens)
        self._advance(passes)
        write, due = live.write, note.check
        note.live, note.attempts, note.first = None, 0, False
        note.steps = write.number
        note.separated = finish == "sentence"
        note.retired = finish in RETIRING
        answered = []
        if write.check and due is not None:
            note.check = None
            answer = self.rules.formatting.check_answer(text)
            answered = [Check(worker, write.name, write.number, *due, answer)]
            self.checks += answered
        step = FinishedStep(
            worker, write.name, write.number, write.text, text, output_tokens, finish
        )
        self._apply_stop(step)
        self._find_conflicts(step)
        return answered

    def dropped(self, worker: int) -> None:
        """The live step left nothing behind; it will be written again while passes last.

        RuntimeError if that happens again and again without an end.
        """
        live, note = self._live(worker), self._notes[worker]
        if note.attempts > self.rules.max_retries + MAX_DROPS:
            raise RuntimeError(
                f"{live.write.name} [{live.write.number}] has been dropped {note.attempts} "
                f"times; does another client abort it?"
            )
        note.steer = live.steer + note.steer
        note.live = None

    def steer(self, worker: int, text: str) -> None:
        """Feed ``text`` after the prefix of the worker's next step."""
        self._notes[worker].steer += text

    def set_check(self, rule: CheckRule | None) -> None:
        """Change the redundancy check; the next one is due after ``rule.every`` tokens."""
        self._check = rule
        if rule is not None:
            self._next_check = self.tokens + rule.every

    def probe(self, budget: int) -> ReadAnswer:
        """How the answer is read for ``budget``, as things stand now."""
        formatting = self.rules.formatting
        return ReadAnswer(
            budget=budget,
            passes=self.passes,
            text=formatting.finish_text(),
            max_new_tokens=self.rules.probe_tokens,
            stop=formatting.finisher_stop,
            seed=seeds.sampling_seed(self.rules.seed, "probe", budget),
        )

    def _writes(self) -> Iterable[Write]:
        for worker, note in enumerate(self._notes):
            if note.live is None and not note.retired and self.left > 0:
                write = self._write(worker, note)
                note.live = Live(write, start=self._clock, steer=note.steer)
                note.steer = ""
                yield write

    def _write(self, worker: int, note: WorkerNote) -> Write:
        rules, name = self.rules, self.rules.workers[worker]
        number = note.steps + 1
        note.attempts += 1
        text = "" if note.separated else rules.formatting.separator
        text += rules.formatting.step_header(name, number)
        asked = note.check is not None and self._check is not None
        if note.first and not asked:
            text += rules.formatting.opener(worker, rules.workers)
        text += note.steer
        if asked:
            text += self._check.text or rules.formatting.check_text
        limit = self.left if rules.step_tokens is None else min(self.left, rules.step_tokens)
        seed = step_seed(rules.seed, worker, number, note.attempts)
        return Write(worker, name, number, note.attempts, text, limit, asked, seed)

    def _due_probes(self) -> Iterable[ReadAnswer]:
        while self._probes and self._probes[-1] <= self.passes:
            yield self.probe(self._probes.pop())

    def _due_hints(self) -> Iterable[SayHint]:
        while self._hints and self._hints[-1][0] <= self.passes:
            yield SayHint(self._hints.pop()[1])

    def _take_aborts(self) -> list[int]:
        taken, self._aborts = self._aborts, []
        return [worker for worker in taken if self._notes[worker].live]

    def _apply_stop(self, step: FinishedStep) -> None:
        if self.rules.stop is None or self._stopped is not None:
            return
        verdict = self.rules.stop(step)
        if verdict:
            self._stopped = Done("stop", verdict if isinstance(verdict, str) else None)

    def _find_conflicts(self, step: FinishedStep) -> None:
        if self.rules.conflict is None:
            return
        for worker, note in enumerate(self._notes):
            live = note.live
            if live is None or live.aborting or note.attempts > self.rules.max_retries:
                continue
            write = live.write
            seen = LiveText(worker, write.name, write.number, write.attempt, write.text, live.text)
            if self.rules.conflict(step, seen):
                live.aborting = True
                self._aborts.append(worker)

    def _count(self, tokens: int) -> None:
        self.tokens += tokens
        if self._check is None or self.tokens < self._next_check:
            return
        self._next_check = (self.tokens // self._check.every + 1) * self._check.every
        for worker in self._draw(self._check.who):
            if self._notes[worker].check is None:
                self._notes[worker].check = (self.tokens, self.passes)

    def _draw(self, who: str) -> list[int]:
        writing = [worker for worker, note in enumerate(self._notes) if not note.retired]
        self._draws += 1
        if who == "all" or not writing:
            return writing
        if who == "first":
            return writing[:1]
        return [seeds.stream(self.rules.seed, "check", self._draws).choice(writing)]

    def _advance(self, passes: int) -> None:
        self._clock = max(self._clock, passes)

    def _live(self, worker: int) -> Live:
        if not 0 <= worker < len(self._notes):
            raise ValueError(f"worker {worker} of {len(self._notes)} workers")
        live = self._notes[worker].live
        if live is None:
            raise ValueError(f"{self.rules.workers[worker]} has no live step")
        return live
