"""How a team worked together, counted from its transcript.

All measures are made from what the workers generated; step headers, checks and hints that
were fed to them do not count. See `phrases.py` for what the word lists can and cannot
tell.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from hogwild_sgl.bench.report.overlap import SHINGLE, redundancy
from hogwild_sgl.bench.report.phrases import (
    CORRECTION,
    DISPUTE,
    IDLE,
    OTHERS,
    mentions,
    sentences,
    tokens,
)
from hogwild_sgl.transcript import Result, Step


@dataclass(frozen=True)
class Correction:
    """One worker says that another's claim is wrong.

    step: place in the result's steps; by, of: workers. stands: nobody took it back or
    disputed it in a step that ended later.
    """

    step: int
    by: int
    of: int
    sentence: str
    stands: bool


@dataclass(frozen=True)
class Measures:
    """Counts for one run; the properties put them in relation.

    steps: published steps by workers. words: their tokens as `phrases.py` cuts them.
    references: mentions of another worker, by name or as "my partner" and the like.
    referring_steps: steps with at least one.
    redundant, shingles: see `overlap.py`.
    corrections, standing: corrections of another's claim, and those that stand.
    checks_yes, checks_no, checks_unclear: answers to the redundancy check.
    idle_words: tokens in sentences that say the worker waits or has nothing to do.
    repeated_words: tokens in sentences that the same worker had written before.
    """

    steps: int
    words: int
    references: int
    referring_steps: int
    redundant: int
    shingles: int
    corrections: int
    standing: int
    checks_yes: int
    checks_no: int
    checks_unclear: int
    idle_words: int
    repeated_words: int

    @property
    def references_per_step(self) -> float:
        return self.references / self.steps if self.steps else 0.0

    @property
    def referring_share(self) -> float:
        return self.referring_steps / self.steps if self.steps else 0.0

    @property
    def redundant_share(self) -> float:
        return self.redundant / self.shingles if self.shingles else 0.0

    @property
    def idle_share(self) -> float:
        return self.idle_words / self.words if self.words else 0.0

    @property
    def repeated_share(self) -> float:
        return self.repeated_words / self.words if self.words else 0.0


def worker_steps(result: Result) -> Iterator[tuple[int, Step]]:
    """The published steps that workers generated, with their place in the result."""
    for at, step in enumerate(result.steps):
        if step.kind == "step" and step.worker is not None:
            yield at, step


def references(result: Result, step: Step) -> int:
    """How often the step mentions another worker."""
    others = [name for n, name in enumerate(result.workers) if n != step.worker]
    if not others:
        return 0
    return len(mentions(step.text, others)) + len(OTHERS.findall(step.text))


def corrections(result: Result) -> list[Correction]:
    """Sentences that name another worker who has written before, and say something is wrong.

    With two workers, "my partner" and the like name the other one too.
    """
    found = []
    for at, step in worker_steps(result):
        for sentence in sentences(step.text):
            if not CORRECTION.search(sentence):
                continue
            for of in _named(result, step, sentence):
                if any(o.worker == of and o.start_pass < step.end_pass for o in result.steps):
                    stands = not _taken_back(result, at, step.worker, of)
                    found.append(Correction(at, step.worker, of, sentence, stands))
    return found


def _named(result: Result, step: Step, sentence: str) -> list[int]:
    named = set(mentions(sentence, result.workers))
    numbers = [n for n, name in enumerate(result.workers) if name in named and n != step.worker]
    if not numbers and len(result.workers) == 2 and OTHERS.search(sentence):
        numbers = [1 - step.worker]
    return numbers


def _taken_back(result: Result, at: int, by: int, of: int) -> bool:
    """Whether a later step disputes the correction: the corrected worker holds to the claim
    or corrects the corrector, or the corrector finds the own correction wrong."""
    corrector = result.workers[by]
    for later, step in worker_steps(result):
        if later <= at or step.worker not in (by, of):
            continue
        for sentence in sentences(step.text):
            if step.worker == by:
                own = "my correction" in sentence.lower() or "was right" in sentence.lower()
                if own and mentions(sentence, [result.workers[of]]) + OTHERS.findall(sentence):
                    return True
            elif DISPUTE.search(sentence):
                return True
            elif CORRECTION.search(sentence) and mentions(sentence, [corrector]):
                return True
    return False


def measure(result: Result, shingle: int = SHINGLE) -> Measures:
    """The measures of one run."""
    steps = list(worker_steps(result))
    mentioned = [references(result, step) for _, step in steps]
    overlap = redundancy(result, shingle)
    found = corrections(result)
    answers = [check.answer for check in result.checks]
    idle, repeated, words = 0, 0, 0
    said: dict[int, set[tuple[str, ...]]] = {}
    for _, step in steps:
        for sentence in sentences(step.text):
            cut = tuple(tokens(sentence))
            words += len(cut)
            idle += len(cut) if IDLE.search(sentence) else 0
            before = said.setdefault(step.worker, set())
            # Short sentences ("Right.") come again without being repetition.
            repeated += len(cut) if len(cut) >= shingle and cut in before else 0
            before.add(cut)
    return Measures(
        steps=len(steps),
        words=words,
        references=sum(mentioned),
        referring_steps=sum(count > 0 for count in mentioned),
        redundant=sum(part for part, _ in overlap.values()),
        shingles=sum(whole for _, whole in overlap.values()),
        corrections=len(found),
        standing=sum(correction.stands for correction in found),
        checks_yes=answers.count("yes"),
        checks_no=answers.count("no"),
        checks_unclear=answers.count("unclear"),
        idle_words=idle,
        repeated_words=repeated,
    )
