"""What a request does for a team: what it writes, for whom, and how it begins and ends."""

from __future__ import annotations

from enum import StrEnum

import msgspec

MIN_WORKERS, MAX_WORKERS = 2, 16


class Kind(StrEnum):
    """What a team's request writes."""

    PROMPT = "prompt"
    HEADER_OTHERS = "header_others"
    HEADER_OWN = "header_own"
    STEP = "step"
    READER = "reader"
    SAY = "say"

    @property
    def is_part(self) -> bool:
        """Is it one of the three texts stored when a team opens?"""
        return self in (Kind.PROMPT, Kind.HEADER_OTHERS, Kind.HEADER_OWN)

    @property
    def publishes(self) -> bool:
        return self in (Kind.STEP, Kind.SAY)


class Purpose(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Travels from the server process to the scheduler in ``custom_params["hogwild"]``."""

    kind: Kind
    team: str
    # The team's, which only the server process knows; without it anybody's request could
    # pose as a team's.
    key: str
    # None for a prompt, a header, a reader of the layout's reader view, and a voice from
    # outside.
    worker: int | None = None
    # The step-end rule ends it, see scheduler/end_rule.py.
    ends_by_rule: bool = False
    # May wait behind its worker's live step.
    ahead: bool = False
    # Request id of the worker's live step when this one was asked for. If that has been
    # dropped meanwhile, this one is refused.
    predecessor: str | None = None
    # The team's forwards at which it ends.
    forwards_limit: int | None = None
    # Its text has no tokens. SGLang takes no request without any, so one stands in their
    # place; the worker's carried token alone is fed.
    empty: bool = False
    # The tokens to feed instead where the worker's text does not end in a blank line: the
    # same text with a separator in front.
    separated: list[int] | None = None

    def __post_init__(self) -> None:
        if self.kind is Kind.STEP and self.worker is None:
            raise ValueError("a step has a worker")
