"""What is read out of a server's log, on lines as SGLang 0.5.23 writes them."""

from __future__ import annotations

import pytest

from hogwild_sgl.launch.server_log import cause_in, plugin_failure_in, remedy_in, stage_of


@pytest.mark.parametrize(
    ("line", "stage"),
    [
        ("[2026-01-01 10:00:00] Load weight begin. avail mem=20.72 GB", "loading the weights"),
        ("[2026-01-01 10:00:00] INFO:     Application startup complete.", "first forward"),
        ("[2026-01-01 10:00:00] Prefill batch, #new-seq: 1", None),
    ],
)
def test_a_line_tells_the_stage_that_begins(line, stage):
    assert stage_of(line) == stage


def test_the_cause_is_the_last_exception_and_not_the_notice_after_it():
    lines = [
        "ValueError: an earlier one that was handled",
        "Traceback (most recent call last):",
        '  File "x.py", line 3, in load',
        "runtime_patch.attention.model_support.UnsupportedModel: sliding-window layers",
        "[2026-01-01 10:00:00] Received sigquit from a child process.",
    ]
    assert cause_in(lines) == lines[3]


def test_a_bad_option_is_a_cause_too():
    line = "launch_server.py: error: unrecognized arguments: --tp-sise 2"
    assert cause_in(["usage: launch_server.py [-h]", line]) == line
    assert "--help" in remedy_in([line])


def test_a_quiet_log_has_no_cause_and_no_remedy():
    assert cause_in(["all is well"]) is None
    assert remedy_in(["all is well"]) == ""


@pytest.mark.parametrize(
    ("line", "word"),
    [
        ("[Errno 98] error while attempting to bind: address already in use", "--port"),
        ("RuntimeError: Not enough memory. Please try to increase it", "--max-total-tokens"),
        ("error: argument --attention-backend: invalid choice: 'hogwild'", "pip install"),
        ("OSError: We couldn't connect to 'https://huggingface.co'", "folder"),
    ],
)
def test_well_known_troubles_have_a_remedy(line, word):
    assert word in remedy_in(["before", line, "after"])


def test_a_plugin_that_failed_is_found_with_its_traceback():
    lines = [
        "[10:00] Loaded plugin other",
        "[10:00] Failed to execute general plugin: hogwild",
        "Traceback (most recent call last):",
        "ImportError: no tea",
        "[10:01] server_args=...",
    ]
    assert plugin_failure_in(lines) == lines[1:4]
    assert plugin_failure_in(lines[:1]) == []
