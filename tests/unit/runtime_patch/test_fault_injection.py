"""The bug that an experiment plants: there when asked for by name, and only then."""

from __future__ import annotations

import logging

import pytest
import torch

from runtime_patch.attention import layouts
from runtime_patch.attention.views import Run, Segment
from runtime_patch.debug import fault_injection


class State:
    """A team of two with a live step each."""

    prompt = Segment("prompt", torch.arange(4), 0)
    header_others = Segment("others", torch.arange(4, 6), 0)
    header_own = Segment("own", torch.arange(6, 8), 0)
    workers = 2

    def history(self, *workers: int | None) -> Run:
        return Run((Segment("step", torch.arange(20, 24), 0),))

    def live(self, worker: int) -> Segment:
        return Segment(("live", worker), torch.arange(8 + worker, 9 + worker), 0)


@pytest.fixture(autouse=True)
def as_before(monkeypatch):
    monkeypatch.setattr(layouts, "LAYOUTS", dict(layouts.LAYOUTS))
    monkeypatch.delenv(fault_injection.ENV, raising=False)


def keys(worker: int) -> list:
    parts = layouts.find_layout("combined")(State(), worker)
    return [part.keys if isinstance(part, Run) else part.key for part in parts]


def test_nothing_is_planted_unless_asked_for():
    fault_injection.plant()
    assert keys(0) == ["prompt", ["step"], "others", ("live", 1), "own"]


def test_blind_workers_see_no_live_steps_and_the_log_says_so(monkeypatch, caplog):
    monkeypatch.setenv(fault_injection.ENV, fault_injection.BLIND)
    with caplog.at_level(logging.WARNING):
        fault_injection.plant()
    assert keys(0) == keys(1) == ["prompt", ["step"], "others", "own"]
    assert "do not see each other's live steps" in caplog.text


def test_a_bug_of_another_name_is_refused(monkeypatch):
    monkeypatch.setenv(fault_injection.ENV, "deaf")
    with pytest.raises(ValueError, match="'blind' or not set"):
        fault_injection.plant()
