"""The replay of a record, on records written by hand."""

from __future__ import annotations

import copy

import pytest
import torch

from tests.oracle.agreement import Sampled, compare
from tests.oracle.decoder import Decoder
from tests.oracle.dense import Block, Row, forward
from tests.oracle.record import RecordError, read_record, replay_record
from tests.oracle.team import Team
from tests.oracle.tiny_models import make_model

PROMPT, OTHERS, OWN = [1, 30, 60, 90, 120], [70, 71], [72, 73, 74]


@pytest.fixture(scope="module")
def decoder(tmp_path_factory):
    return Decoder.load(make_model(tmp_path_factory.mktemp("models") / "llama", "llama"))


def _row(rid: str, tokens: list[int], position: int, view: int, **who) -> dict:
    team = {"team": "t", "worker": None, **who} if who else {"team": None, "worker": None}
    return {"kind": "plain", **team, "rid": rid, "tokens": tokens, "position": position} | {
        "view": view
    }


def _step(rid: str, worker: int, tokens: list[int], position: int, view: int) -> dict:
    return _row(rid, tokens, position, view, worker=worker, kind="step")


def _forward(*rows: dict) -> dict:
    return {"event": "forward", "forward": 0, "rows": list(rows)}


def _event(event: str, **fields) -> dict:
    return {"event": event, "team": "t", **fields}


OPEN = [
    _event("open", workers=2, layout="combined"),
    _event("part", kind="prompt", tokens=PROMPT, base=0),
    _event("part", kind="header_others", tokens=OTHERS, base=0),
    _event("part", kind="header_own", tokens=OWN, base=0),
]
TWO_STEPS = [
    *OPEN,
    _forward(_step("a", 0, [10, 11], 0, 10 + 2 + 1), _step("b", 1, [20], 0, 10 + 2 + 1)),
    _forward(_step("a", 0, [12], 2, 10 + 3 + 2), _step("b", 1, [21], 1, 10 + 3 + 2)),
    _event("publish", rid="a", worker=0, index=0),
    _event("publish", rid="b", worker=1, index=1),
    _forward(_step("c", 0, [13], 0, 15 + 1)),
]


def test_two_workers_are_replayed_as_the_definition_says(decoder):
    team = Team(decoder, 2, "combined")
    team.prefill("prompt", PROMPT)
    team.prefill("header_others", OTHERS)
    team.prefill("header_own", OWN)
    for worker in (0, 1):
        team.begin(worker)
    expected = forward(decoder, [Row([10, 11], team.view(0)), Row([20], team.view(1))])
    expected += forward(decoder, [Row([12], team.view(0)), Row([21], team.view(1))])
    for worker in (0, 1):
        team.publish(worker)
        team.begin(worker)
    expected += forward(decoder, [Row([13], team.view(0))])
    predictions = list(replay_record(TWO_STEPS, decoder, {}))
    assert [prediction.rid for prediction in predictions] == ["a", "b", "a", "b", "c"]
    for prediction, logits in zip(predictions, expected, strict=True):
        assert torch.equal(prediction.logits, logits)


def test_readers_and_voices_read_and_a_voice_is_published(decoder):
    lines = [
        *OPEN,
        _forward(
            _step("a", 0, [10], 0, 10 + 1),
            _row("r", [50, 51], 0, 10 + 1 + 2, kind="reader"),
            _row("v", [40, 41, 42], 0, 5 + 3, kind="say"),
        ),
        _event("publish", rid="v", worker=None, index=0),
        _forward(_step("a", 0, [11], 1, 10 + 3 + 2), _row("r", [52], 2, 13 + 2 + 3, kind="reader")),
        _event("end_reader", rid="r"),
        _event("publish", rid="a", worker=0, index=1),
        _event("close"),
    ]
    assert len(list(replay_record(lines, decoder, {}))) == 5


def test_a_doomed_step_is_seen_by_nobody_else(decoder):
    lines = [
        *OPEN,
        _forward(_step("a", 0, [10], 0, 10 + 2), _step("b", 1, [20], 0, 10 + 2)),
        _event("doom", rid="b", worker=1),
        _forward(_step("a", 0, [11], 1, 10 + 2), _step("b", 1, [21], 1, 10 + 2 + 2)),
        _event("drop", rid="b", worker=1),
        _forward(_step("a", 0, [12], 2, 10 + 1 + 3), _step("c", 1, [22], 0, 10 + 3 + 1)),
    ]
    assert len(list(replay_record(lines, decoder, {}))) == 6


def test_an_ordinary_request_with_a_cached_prefix_or_a_second_start_is_one_sequence(decoder):
    tokens = [1, 30, 60, 90, 33, 34, 35]
    lines = [
        _forward(_row("p", [33, 34], 4, 6), _row("warm-up", [5], 0, 1)),
        _forward(_row("p", [35], 6, 7)),
        _forward(_row("p", [90, 33, 34, 35], 3, 7)),
    ]
    predictions = list(replay_record(lines, decoder, {"p": tokens[:6]}))
    (expected,) = forward(decoder, [Row(tokens, [Block()])])
    assert [prediction.position for prediction in predictions] == [4, 6, 3]
    for prediction in predictions:
        end = prediction.position + len(prediction.tokens)
        torch.testing.assert_close(
            prediction.logits, expected[prediction.position : end], atol=1e-9, rtol=0
        )


def _broken(change) -> list[dict]:
    lines = copy.deepcopy(TWO_STEPS)
    change(lines)
    return lines


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda lines: lines[5]["rows"][1].update(view=14), "by the definition it has 15"),
        (lambda lines: lines[5]["rows"][0].update(position=3), "feeds at 3 after 2 tokens"),
        (lambda lines: lines.insert(6, lines.pop(7)), "published as number 1"),
        (lambda lines: lines.pop(6), "published as number 1"),
        (lambda lines: lines.insert(7, _event("close")), "closed with live writers"),
    ],
)
def test_a_record_that_contradicts_the_definition_is_refused(decoder, change, message):
    with pytest.raises(RecordError, match=message):
        list(replay_record(_broken(change), decoder, {}))


def test_steps_of_one_forward_must_be_published_in_worker_order(decoder):
    lines = _broken(lambda lines: lines[6].update(rid="b") or lines[7].update(rid="a"))
    with pytest.raises(RecordError, match="after a higher worker's step"):
        list(replay_record(lines, decoder, {}))


def test_agreement_counts_equal_tokens_and_names_wrong_ones(decoder):
    def greedy(lines, rid, index):
        rows = [each for each in replay_record(lines, decoder, {}) if each.rid == rid]
        return int(rows[index].logits[-1].argmax())

    lines = copy.deepcopy(TWO_STEPS)
    second = greedy(lines, "a", 0)
    lines[5]["rows"][0]["tokens"] = [second]
    third = greedy(lines, "a", 1)
    predictions = list(replay_record(lines, decoder, {}))
    good = compare(predictions, {"a": Sampled([10, 11], [second, third])})
    assert (good.equal, good.ties, good.wrong) == (2, [], [])
    other = (third + 1) % 320
    bad = compare(predictions, {"a": Sampled([10, 11], [second, other, 7])})
    assert bad.equal == 1
    assert bad.wrong[0][:2] == ("a", 1)
    assert bad.wrong[1] == "1 tokens of a are not in the record"
    lied = compare(predictions, {"a": Sampled([10, 9], [second, third])})
    assert lied.wrong == ["a fed other tokens than it reported"]


def test_an_unfinished_last_line_is_left_out(tmp_path):
    path = tmp_path / "record.jsonl"
    path.write_text('{"event": "close", "team": "t"}\n{"event": "fo')
    assert read_record(path) == [{"event": "close", "team": "t"}]
