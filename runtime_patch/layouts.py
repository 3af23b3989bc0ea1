"""Layouts: from a team's state and a writer to what that writer attends to.

A layout is a function ``(state, worker) -> list[Segment]`` that returns everything in
the view *before* the writer's own live step, in order; the engine appends the live
step itself. Source: the paper's section 3.2 and its appendix on cache layouts.

To add one, decorate a function with ``@layout("name")`` in a module that the server
imports (a plugin of the entry point group ``sglang.srt.plugins``).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import Protocol

from runtime_patch.attention.plan import Segment


class PublishedSegment(Protocol):
    """A published step, as a layout sees it; ``worker`` is None for a voice from outside."""

    worker: int | None
    segment: Segment


class ViewState(Protocol):
    """What a layout may look at. All segments may be empty."""

    prompt: Segment
    header_others: Segment
    header_own: Segment
    published: Sequence[PublishedSegment]
    workers: int

    def live(self, worker: int) -> Segment:
        """The worker's live step, with the tokens written in this forward."""


Layout = Callable[[ViewState, int], list[Segment]]

_segment = attrgetter("segment")

LAYOUTS: dict[str, Layout] = {}


class UnknownLayout(ValueError):
    """No layout of that name; the message lists the known ones."""


def layout(name: str) -> Callable[[Layout], Layout]:
    """Register a layout under ``name``."""

    def register(function: Layout) -> Layout:
        if name in LAYOUTS:
            raise ValueError(f"a layout named {name!r} is already registered")
        LAYOUTS[name] = function
        return function

    return register


def find_layout(name: str) -> Layout:
    try:
        return LAYOUTS[name]
    except KeyError:
        known = ", ".join(LAYOUTS)
        raise UnknownLayout(f"unknown layout {name!r}; known layouts: {known}") from None


def _history(state: ViewState) -> list[Segment]:
    return [state.prompt, *map(_segment, state.published)]


def _others(state: ViewState, worker: int | None) -> list[Segment]:
    return [state.live(other) for other in range(state.workers) if other != worker]


@layout("combined")
def combined(state: ViewState, worker: int) -> list[Segment]:
    """The paper's method: history, the others' live steps, then one's own."""
    return [
        *_history(state),
        state.header_others,
        *_others(state, worker),
        state.header_own,
    ]


@layout("interleaved")
def interleaved(state: ViewState, worker: int) -> list[Segment]:
    """Step-wise: others are seen once their step is published."""
    return [*_history(state), state.header_own]


@layout("contiguous")
def contiguous(state: ViewState, worker: int) -> list[Segment]:
    """Each worker's tokens in one piece, one's own last."""
    said = [step.segment for step in state.published if step.worker is None]
    own = [step.segment for step in state.published if step.worker == worker]
    others: list[Segment] = []
    for other in range(state.workers):
        if other != worker:
            others += [step.segment for step in state.published if step.worker == other]
            others.append(state.live(other))
    return [state.prompt, *said, state.header_others, *others, state.header_own, *own]


@layout("independent")
def independent(state: ViewState, worker: int) -> list[Segment]:
    """No synchronisation: one's own tokens only, and what was said to everybody."""
    return [
        state.prompt,
        *(step.segment for step in state.published if step.worker in (worker, None)),
    ]


def reader_view(state: ViewState) -> list[Segment]:
    """A reader's view in every layout: all workers' live steps are others."""
    return [*_history(state), state.header_others, *_others(state, None), state.header_own]


def outside_view(state: ViewState) -> list[Segment]:
    """What a text from outside is written after: the place where it will stand."""
    return _history(state)
