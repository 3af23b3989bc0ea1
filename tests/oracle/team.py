"""A team's state and its four layouts, as the definition words them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tests.oracle.decoder import Decoder
from tests.oracle.dense import Block, Row, forward


@dataclass(frozen=True)
class Published:
    """worker: whose step it is; None for a voice from outside."""

    worker: int | None
    block: Block


class Team:
    """Blocks of one team: prompt, two headers, published steps, one live step per worker.

    The parts are prefilled one by one with ``prefill``, the prompt first. A header is
    computed with nothing before it or after the prompt; either way it stands in a view
    where the layout puts it.
    """

    def __init__(self, decoder: Decoder, workers: int, layout: str) -> None:
        if layout not in LAYOUTS:
            raise ValueError(f"unknown layout {layout!r}, known are {', '.join(LAYOUTS)}")
        self.decoder = decoder
        self.workers = workers
        self.layout = layout
        self.prompt, self.header_others, self.header_own = Block(), Block(), Block()
        self.published: list[Published] = []
        self.live: dict[int, Block] = {}

    def prefill(self, part: str, tokens: Sequence[int], after_prompt: bool = False) -> None:
        """part: ``prompt``, ``header_others`` or ``header_own``. No tokens: it stays empty."""
        block = {
            "prompt": self.prompt,
            "header_others": self.header_others,
            "header_own": self.header_own,
        }[part]
        if len(block):
            raise ValueError(f"the team's {part} is there already")
        if tokens:
            view = [self.prompt, block] if after_prompt else [block]
            forward(self.decoder, [Row(tokens, view)])

    def begin(self, worker: int) -> Block:
        """A new live step of ``worker``; from now on the others' views include it."""
        if not 0 <= worker < self.workers:
            raise ValueError(f"worker {worker} of a team of {self.workers}")
        if worker in self.live:
            raise ValueError(f"worker {worker} has a live step already")
        self.live[worker] = Block()
        return self.live[worker]

    def publish(self, worker: int) -> None:
        self.published.append(Published(worker, self.live.pop(worker)))

    def say(self, worker: int | None, block: Block) -> None:
        """Publish a text that nobody saw while it was computed."""
        self.published.append(Published(worker, block))

    def drop(self, worker: int) -> None:
        del self.live[worker]

    def view(self, worker: int, own: Block | None = None) -> list[Block]:
        """What ``worker``'s live step reads, the step itself last; or what another block
        reads in its place."""
        return LAYOUTS[self.layout](self, worker, self.live[worker] if own is None else own)

    def reader_view(self, own: Block) -> list[Block]:
        """What a reader reads in every layout: all live steps are others'."""
        return _combined(self, None, own)

    def voice_view(self, own: Block) -> list[Block]:
        """What a text from outside is computed after: the history, no headers."""
        return [self.prompt, *self.history(), own]

    def history(self) -> list[Block]:
        return [step.block for step in self.published]

    def written_by(self, worker: int | None) -> list[Block]:
        return [step.block for step in self.published if step.worker == worker]

    def live_of_others(self, worker: int | None) -> list[Block]:
        return [self.live[other] for other in sorted(self.live) if other != worker]


def _combined(team: Team, worker: int | None, own: Block) -> list[Block]:
    others = team.live_of_others(worker)
    return [
        *(team.prompt, *team.history()),
        *(team.header_others, *others),
        *(team.header_own, own),
    ]


def _interleaved(team: Team, worker: int, own: Block) -> list[Block]:
    return [team.prompt, *team.history(), team.header_own, own]


def _contiguous(team: Team, worker: int, own: Block) -> list[Block]:
    view = [team.prompt, *team.written_by(None), team.header_others]
    for other in range(team.workers):
        if other != worker:
            view += team.written_by(other)
            view += [team.live[other]] if other in team.live else []
    return [*view, team.header_own, *team.written_by(worker), own]


def _independent(team: Team, worker: int, own: Block) -> list[Block]:
    spoken = (step.block for step in team.published if step.worker in (worker, None))
    return [team.prompt, *spoken, own]


LAYOUTS = {
    "combined": _combined,
    "interleaved": _interleaved,
    "contiguous": _contiguous,
    "independent": _independent,
}
