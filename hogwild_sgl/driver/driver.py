"""The driver of a team: who writes what next, and when it is over. No I/O, no threads.

Whoever runs it (the DSL, a loop in the server, a benchmark) asks :meth:`Driver.poll` for
commands until there are none, carries them out, and tells the driver what happened:

    driver = Driver(rules)
    while not over:
        while commands := driver.poll(): ...     # Write, Answered, ReadAnswer, ..., Done
        driver.started(...) / progressed(...) / published(...) / dropped(...) / not_begun(...)

Steps. A step is fed the separator (unless the worker carries a blank line from its last
step, which then comes first), the step prefix, on the first step an opener, and after a
`steer` its text; then the worker generates.

One step ahead. As soon as a step has begun the driver asks for the one behind it, marked as
ahead, so that it can begin in the forward after the first one is published. What it is fed
is decided there and then; what comes later (a check that falls due, a text to steer by) is
put into the step after it.

Budget. It is counted in the team's sequential forward passes, not in tokens. Each step says
at which forward it ends at the latest, and the server ends it there.

Redundancy check. Every so many generated tokens, summed over the workers, one is due. It
is put to one worker, drawn from the seed, at the start of that worker's next step that has
not been asked for: the question is fed after the step prefix and the worker simply goes on
writing. So the check costs no forward pass of its own, the others read question and answer,
and the answer is the way the generated text begins: yes, no, or unclear. (Section 3.3 of
the paper. Scoring "yes" against "no" with readers would always give an answer, but stops
the worker for a round trip and puts a word into its mouth.)

Determinism. The driver goes by published steps in the order of (forward, worker), whatever
the order in which it hears of them, and counts the tokens of published steps only. Draws
depend on the seed and on how many draws came before. So what the workers are fed follows
from what they write. Only what is asked for in the middle of a step goes by the clock of
the messages: probes, hints and retries.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from hogwild_sgl import seeds
from hogwild_sgl.driver.commands import (
    AbortStep,
    Answered,
    CheckRule,
    Command,
    Done,
    FinishedStep,
    LiveText,
    ReadAnswer,
    Rules,
    SayHint,
    WorkerStart,
    Write,
)
from hogwild_sgl.driver.timeline import PUBLISHED, STARTED, Happened, Heard, Timeline
from hogwild_sgl.driver.worker_cursor import Ended, Extra, Planned, WorkerNote
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
        self._time = Timeline(passes, [s.steps for s in starts])
        self._began = self._reached = passes
        self._until = passes + rules.budget
        self._check = rules.check
        self._next_check = rules.check.every if rules.check else 0
        self._draws = 0
        self._probes = sorted(set(rules.probe_at), reverse=True)
        self._hints = sorted(rules.hints, reverse=True)
        self._ahead: list[Write] = []
        self._aborts: list[AbortStep] = []
        self._stopped: Done | None = None
        self._over = False

    @property
    def passes(self) -> int:
        """Passes used since the driver took over, as far as it has been told; once a stop
        rule has ended the run, those at which it did."""
        return (self._reached if self._stopped else self._time.clock) - self._began

    @property
    def left(self) -> int:
        return max(0, self.rules.budget - self.passes)

    @property
    def unprobed(self) -> tuple[int, ...]:
        """Budgets at which the answer was to be read, and that have not been reached."""
        return tuple(reversed(self._probes))

    @property
    def live(self) -> tuple[int, ...]:
        """Workers that are writing, or have been asked to."""
        return tuple(i for i, note in enumerate(self._notes) if note.current)

    def poll(self) -> list[Command]:
        """What is to be done now; poll again until it is nothing. Done is the last."""
        if self._over:
            return []
        answered = self._go_on()
        if answered is not None:
            return [Answered(answered)]
        commands: list[Command] = [*self._take(self._aborts)]
        commands += self._due_hints()
        commands += self._due_probes()
        if self._stopped is None:
            commands += self._take(self._ahead)
            commands += self._writes()
            if not self.live:
                used = any(note.over for note in self._notes) or self._reached >= self._until
                self._stopped = Done("budget" if used else "workers_ended")
        if self._stopped is not None:
            self._over = True
            commands.append(self._stopped)
        return commands

    def started(self, worker: int, passes: int) -> None:
        """The worker's next step has been admitted; the team had used ``passes``."""
        self._heard(worker)
        self._time.started(worker, passes)

    def progressed(self, worker: int, text: str, tokens: int) -> None:
        """The live step grew by ``text``, ``tokens`` tokens long."""
        self._live(worker)
        self._time.progressed(worker, text, tokens)

    def published(
        self, worker: int, *, text: str, output_tokens: int, passes: int, finish: str
    ) -> None:
        """The live step is published: its whole generated text, the team's forwards now,
        and why it ended. A redundancy check that it answered comes as a command."""
        self._live(worker)
        last = finish in RETIRING or passes >= self._until
        ended = Ended(text, output_tokens, finish)
        self._time.published(worker, passes, ended, last=last)

    def dropped(self, worker: int) -> None:
        """The live step left nothing behind; it will be written again while passes last,
        and so will the one that was asked for ahead of time. If that happens again and
        again, polling raises RuntimeError."""
        self._heard(worker)
        self._time.dropped(worker, (None, False))

    def not_begun(self, write: Write, *, spent: bool = False) -> None:
        """The step of this command has been refused: there is nothing to go on from, or
        (spent) the team has used the forwards it was given."""
        self._heard(write.worker)
        self._time.not_begun(write.worker, (write, spent), last=spent)

    def steer(self, worker: int, text: str) -> None:
        """Feed ``text`` after the prefix of the worker's next step that has not been asked
        for yet."""
        note = self._notes[worker]
        note.extra = Extra(note.extra.steer + text, note.extra.due)

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

    # What happened, in order.

    def _go_on(self) -> Check | None:
        """Takes in what has happened, up to a check that has been answered."""
        while self._stopped is None and (what := self._time.next()) is not None:
            self._reached = max(self._reached, what.passes)
            if what.kind == PUBLISHED:
                answered = self._was_published(what)
                if answered is not None:
                    return answered
            elif what.kind == STARTED:
                self._has_begun(what)
            else:
                self._was_lost(what.worker, *what.data)
        return None

    def _has_begun(self, what: Happened) -> None:
        note = self._notes[what.worker]
        if note.current is None:
            raise ValueError(f"{self.rules.workers[what.worker]} was not asked for a step")
        left = self._until - what.passes - 1
        if left > 0 and note.ahead is None:
            note.ahead = self._plan(what.worker, note.current.write.number + 1, left, ahead=True)
            self._ahead.append(note.ahead.write)

    def _was_published(self, what: Happened) -> Check | None:
        note, ended = self._notes[what.worker], what.data
        assert note.current is not None
        write, due = note.current.write, note.current.extra.due
        note.steps, note.first, note.drops = write.number, False, 0
        note.separated = ended.finish == "sentence"
        note.retired = ended.finish in RETIRING
        note.current, note.ahead = note.ahead, None
        if note.retired or what.passes >= self._until:
            note.current = None
        self._count(ended.tokens, what.passes)
        step = FinishedStep(
            *(what.worker, write.name, write.number, write.text),
            *(ended.text, ended.tokens, ended.finish),
        )
        self._apply_stop(step)
        self._find_conflicts(step)
        if not write.check or due is None:
            return None
        answer = self.rules.formatting.check_answer(ended.text)
        self.checks.append(Check(what.worker, write.name, write.number, *due, answer))
        return self.checks[-1]

    def _was_lost(self, worker: int, refused: Write | None, spent: bool) -> None:
        """refused: the step that could not be begun; None if the live one was dropped."""
        note = self._notes[worker]
        if refused is not None and note.ahead and note.ahead.write == refused:
            note.extra, note.ahead = note.ahead.extra + note.extra, None
        live = self._time.heard[worker].live
        lost = note.current is not None and not live
        if not lost or (refused is not None and note.current.write != refused):
            return
        if spent:
            note.over, note.current = True, None
            return
        note.drops += 1
        if note.drops > self.rules.max_retries + MAX_DROPS:
            raise RuntimeError(
                f"{self.rules.workers[worker]} [{note.current.write.number}] has been dropped "
                f"{note.drops} times; does another client abort it?"
            )
        note.again = note.current.extra
        if note.ahead is not None:
            note.extra = note.ahead.extra + note.extra
        self._ahead = [write for write in self._ahead if write.worker != worker]
        note.current = note.ahead = None

    # What is to be done.

    def _writes(self) -> Iterable[Write]:
        left = self._until - self._reached
        for worker, note in enumerate(self._notes):
            if note.current is None and not note.retired and not note.over and left > 0:
                note.current = self._plan(worker, note.steps + 1, left)
                yield note.current.write

    def _plan(self, worker: int, number: int, left: int, *, ahead: bool = False) -> Planned:
        rules, note, name = self.rules, self._notes[worker], self.rules.workers[worker]
        if note.again is not None:
            extra, note.again = note.again, None
        else:
            extra, note.extra = note.extra, Extra()
        attempt = note.attempts[number] = note.attempts.get(number, 0) + 1
        text = rules.formatting.step_header(name, number)
        if not ahead and not note.separated:
            text = rules.formatting.separator + text
        asked = extra.due is not None and self._check is not None
        if note.first and not ahead and not asked:
            text += rules.formatting.opener(worker, rules.workers)
        text += extra.steer
        if asked:
            text += self._check.text or rules.formatting.check_text
        write = Write(
            worker,
            name,
            number,
            attempt,
            text,
            max_new_tokens=left if rules.step_tokens is None else min(left, rules.step_tokens),
            until=self._until,
            check=asked,
            seed=step_seed(rules.seed, worker, number, attempt),
            ahead=ahead,
            separator=rules.formatting.separator if ahead else "",
        )
        return Planned(write, extra)

    def _due_probes(self) -> Iterable[ReadAnswer]:
        while self._probes and self._probes[-1] <= self.passes:
            yield self.probe(self._probes.pop())

    def _due_hints(self) -> Iterable[SayHint]:
        while self._hints and self._hints[-1][0] <= self.passes:
            yield SayHint(self._hints.pop()[1])

    def _apply_stop(self, step: FinishedStep) -> None:
        if self.rules.stop is None:
            return
        verdict = self.rules.stop(step)
        if verdict:
            self._stopped = Done("stop", verdict if isinstance(verdict, str) else None)

    def _find_conflicts(self, step: FinishedStep) -> None:
        if self.rules.conflict is None:
            return
        for worker, note in enumerate(self._notes):
            heard = self._time.heard[worker]
            if note.current is None or note.drops >= self.rules.max_retries or not heard.live:
                continue
            write = note.current.write
            # What is being written may be a step further than what has been taken in.
            if note.aborting == write or write.number != heard.steps + 1:
                continue
            seen = LiveText(worker, write.name, write.number, write.attempt, write.text, heard.text)
            if self.rules.conflict(step, seen):
                note.aborting = write
                self._aborts.append(AbortStep(worker, write.number))

    def _count(self, tokens: int, passes: int) -> None:
        self.tokens += tokens
        if self._check is None or self.tokens < self._next_check:
            return
        self._next_check = (self.tokens // self._check.every + 1) * self._check.every
        for worker in self._draw(self._check.who):
            note = self._notes[worker]
            if note.extra.due is None:
                note.extra = Extra(note.extra.steer, (self.tokens, passes - self._began))

    def _draw(self, who: str) -> list[int]:
        writing = [worker for worker, note in enumerate(self._notes) if not note.retired]
        self._draws += 1
        if who == "all" or not writing:
            return writing
        if who == "first":
            return writing[:1]
        return [seeds.stream(self.rules.seed, "check", self._draws).choice(writing)]

    def _take(self, commands: list) -> list:
        taken = list(commands)
        commands.clear()
        return taken

    def _heard(self, worker: int) -> Heard:
        if not 0 <= worker < len(self._notes):
            raise ValueError(f"worker {worker} of {len(self._notes)} workers")
        return self._time.heard[worker]

    def _live(self, worker: int) -> None:
        if not self._heard(worker).live:
            raise ValueError(f"{self.rules.workers[worker]} has no live step")
