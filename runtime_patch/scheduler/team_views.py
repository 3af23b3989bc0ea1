"""What each writer of a team attends to in one forward."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch

from runtime_patch.attention.layouts import outside_view, reader_view
from runtime_patch.attention.views import Part, Run, Segment
from runtime_patch.scheduler.team import EMPTY_SLOTS, PublishedStep, Team, Writer
from runtime_patch.team_request import Kind


@dataclass(frozen=True)
class TeamViews:
    """The ``ViewState`` of one team in one forward, and its writers' views.

    written: the KV slots of every live request, by rid, tokens of this forward included.
    """

    team: Team
    written: Mapping[str, torch.Tensor]

    @property
    def prompt(self) -> Segment:
        return self.team.part_segment(Kind.PROMPT)

    @property
    def header_others(self) -> Segment:
        return self.team.part_segment(Kind.HEADER_OTHERS)

    @property
    def header_own(self) -> Segment:
        return self.team.part_segment(Kind.HEADER_OWN)

    @property
    def published(self) -> list[PublishedStep]:
        return self.team.published

    @property
    def workers(self) -> int:
        return self.team.workers

    def live(self, worker: int) -> Segment:
        writer = self.team.live.get(worker)
        if writer is None or writer.aborting:
            return Segment((self.team.name, "none", worker), EMPTY_SLOTS, 0)
        return self.own(writer)

    def own(self, writer: Writer) -> Segment:
        """A writer's own tokens. Its row starts with them, so they sit at position 0."""
        return Segment(writer.rid, self.written.get(writer.rid, EMPTY_SLOTS), 0)

    def history(self, *workers: int | None) -> Run:
        return self.team.history(*workers)

    def view(self, writer: Writer) -> tuple[Part, ...]:
        """The writer's whole view: what its layout says, then its own tokens."""
        if writer.worker is not None:
            before = self.team.layout(self, writer.worker)
        elif writer.kind is Kind.READER:
            before = reader_view(self)
        else:
            before = outside_view(self)
        return (*before, self.own(writer))
