"""Layouts: from a team's state and a writer to what that writer attends to.

A layout is a function ``(state, worker) -> list[Part]`` that returns everything in
the view *before* the writer's own live step, in order: segments, and runs of published
steps. The engine appends the live step itself. Source: the paper's section 3.2 and its
appendix on cache layouts.

To add one, decorate a function with ``@layout("name")`` in a module that the server
imports (a plugin of the entry point group ``sglang.srt.plugins``).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from runtime_patch.attention.views import Part, Run, Segment


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

    def history(self, *workers: int | None) -> Run:
        """The steps that these workers have published (None: voices from outside), in the
        order of publishing; everybody's when none is named. Kept from forward to forward."""


Layout = Callable[[ViewState, int], list[Part]]

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


def _others(state: ViewState, worker: int | None) -> list[Segment]:
    return [state.live(other) for other in range(state.workers) if other != worker]


@layout("combined")
def combined(state: ViewState, worker: int) -> list[Part]:
    """The paper's method: history, the others' live steps, then one's own."""
    return [
        state.prompt,
        state.history(),
        state.header_others,
        *_others(state, worker),
        state.header_own,
    ]


@layout("interleaved")
def interleaved(state: ViewState, worker: int) -> list[Part]:
    """Step-wise: others are seen once their step is published."""
    return [state.prompt, state.history(), state.header_own]


@layout("contiguous")
def contiguous(state: ViewState, worker: int) -> list[Part]:
    """Each worker's tokens in one piece, one's own last."""
    others: list[Part] = []
    for other in range(state.workers):
        if other != worker:
            others += [state.history(other), state.live(other)]
    said, own = state.history(None), state.history(worker)
    return [state.prompt, said, state.header_others, *others, state.header_own, own]


@layout("independent")
def independent(state: ViewState, worker: int) -> list[Part]:
    """No synchronisation: one's own tokens only, and what was said to everybody."""
    return [state.prompt, state.history(worker, None)]


def reader_view(state: ViewState) -> list[Part]:
    """A reader's view in every layout: all workers' live steps are others."""
    others = _others(state, None)
    return [state.prompt, state.history(), state.header_others, *others, state.header_own]


def outside_view(state: ViewState) -> list[Part]:
    """What a text from outside is written after: the place where it will stand."""
    return [state.prompt, state.history()]
