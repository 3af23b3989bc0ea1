"""The oracle itself: against transformers, against stored cases, and by its own laws."""

from __future__ import annotations

import json

import pytest
import torch
from transformers import (
    AutoTokenizer,
    Ernie4_5ForCausalLM,
    Glm4ForCausalLM,
    LlamaForCausalLM,
    Qwen2ForCausalLM,
    Qwen3ForCausalLM,
    StableLmForCausalLM,
)

from tests.oracle.cases import CaseSpec, largest_difference, load_trace, replay, write_case
from tests.oracle.decoder import Decoder
from tests.oracle.dense import Block, Row, forward
from tests.oracle.team import LAYOUTS, Team
from tests.oracle.tiny_models import FAMILIES, make_model
from tests.oracle.tiny_tokenizer import STEP_ENDS
from tests.reference import reference_cases

TRANSFORMERS = {
    "llama": LlamaForCausalLM,
    "qwen2": Qwen2ForCausalLM,
    "qwen3": Qwen3ForCausalLM,
    "stablelm": StableLmForCausalLM,
    "glm4": Glm4ForCausalLM,
    "ernie4_5": Ernie4_5ForCausalLM,
}
PROMPT, OTHERS, OWN = [30, 60, 90, 120, 44], [70, 71], [72, 73, 74]


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    root = tmp_path_factory.mktemp("models")
    return {family: make_model(root / family, family) for family in FAMILIES}


@pytest.fixture(scope="module")
def llama(models):
    return Decoder.load(models["llama"])


def _tokens(count: int, seed: int = 0) -> list[int]:
    return torch.randint(5, 320, (count,), generator=torch.Generator().manual_seed(seed)).tolist()


def _team(
    decoder: Decoder, workers: int, layout: str, headers: bool = True, after_prompt: bool = False
) -> Team:
    team = Team(decoder, workers, layout)
    team.prefill("prompt", PROMPT)
    if headers:
        team.prefill("header_others", OTHERS, after_prompt)
        team.prefill("header_own", OWN, after_prompt)
    return team


def _write(decoder: Decoder, team: Team, fed: dict[int, list[int]]) -> dict[int, torch.Tensor]:
    for worker in fed:
        if worker not in team.live:
            team.begin(worker)
    rows = [Row(tokens, team.view(worker)) for worker, tokens in fed.items()]
    return dict(zip(fed, forward(decoder, rows), strict=True))


@pytest.mark.parametrize("family", FAMILIES)
def test_one_sequence_gives_the_logits_of_transformers(models, family):
    config = json.loads((models[family] / "config.json").read_text())
    model, info = TRANSFORMERS[config["model_type"]].from_pretrained(
        models[family], dtype=torch.float64, attn_implementation="eager", output_loading_info=True
    )
    assert not any(info.values())
    tokens = _tokens(64)
    (logits,) = forward(Decoder.load(models[family]), [Row(tokens, [Block()])])
    with torch.inference_mode():
        expected = model(torch.tensor([tokens])).logits[0]
    # transformers keeps its frequencies and angles in float32
    torch.testing.assert_close(logits, expected, atol=5e-5, rtol=0)


@pytest.mark.parametrize("case", reference_cases(), ids=lambda case: case.name)
def test_a_reference_case_is_reproduced(case):
    assert largest_difference(case, replay(case)) < 1e-4


@pytest.mark.parametrize("family", FAMILIES)
def test_two_points_turn_to_each_other_by_their_distance_alone(models, family):
    rotary = Decoder.load(models[family]).rotary
    q, k = torch.randn(2, 1, 1, 32, dtype=torch.float64)

    def score(at: int, other: int) -> float:
        return float(
            (rotary.place(q, torch.tensor([at])) * rotary.place(k, torch.tensor([other]))).sum()
        )

    assert score(900, 850) == pytest.approx(score(50, 0), abs=1e-9)
    assert score(50, 0) != pytest.approx(score(49, 0), abs=1e-6)


def test_yarn_scales_what_it_rotates_and_the_others_do_not(models):
    magnitude = {family: Decoder.load(folder).rotary.magnitude for family, folder in models.items()}
    assert magnitude.pop("yarn") == pytest.approx(1.1386, abs=1e-4)
    assert set(magnitude.values()) == {1.0}


@pytest.mark.parametrize("family", FAMILIES)
def test_greedy_decoding_wanders_and_ends_steps(models, family):
    decoder = Decoder.load(models[family])
    tokenizer = AutoTokenizer.from_pretrained(models[family])
    ends = {token for token in range(320) if tokenizer.decode([token]) in STEP_ENDS}
    assert len(ends) == len(STEP_ENDS)
    team = _team(decoder, 2, "combined")
    written, pending = [], {0: [80], 1: [81]}
    for _ in range(120):
        logits = _write(decoder, team, pending)
        pending = {worker: [int(row[-1].argmax())] for worker, row in logits.items()}
        written += [token for [token] in pending.values()]
        for worker, [token] in pending.items():
            if token in ends:
                team.publish(worker)
    assert len(set(written)) > 30
    assert ends & set(written)


def test_the_tokenizer_keeps_any_text_and_adds_bos(models):
    tokenizer = AutoTokenizer.from_pretrained(models["llama"])
    text = "**Alice [1]:** 2 + 3 = 5.\n\nSo `x`, é, 漢字。\n\n"
    tokens = tokenizer(text, add_special_tokens=False)["input_ids"]
    assert tokenizer.decode(tokens) == text
    assert tokenizer(text)["input_ids"] == [tokenizer.bos_token_id, *tokens]
    chat = [{"role": "user", "content": "hi"}]
    assert tokenizer.apply_chat_template(chat, tokenize=False, add_generation_prompt=True) == (
        "<s><|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n"
    )


def test_independent_workers_read_their_own_sequence_alone(llama):
    team = _team(llama, 2, "independent")
    _write(llama, team, {0: [10, 11], 1: [20]})
    team.publish(1)
    rows = _write(llama, team, {0: [12], 1: [21, 22]})
    (alone,) = forward(llama, [Row([*PROMPT, 20, 21, 22], [Block()])])
    torch.testing.assert_close(rows[1], alone[-2:], atol=1e-9, rtol=0)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_worker_alone_writes_one_plain_sequence(llama, layout):
    team = _team(llama, 3, layout, headers=False)
    _write(llama, team, {1: [10, 11]})
    team.publish(1)
    rows = _write(llama, team, {1: [12, 13]})
    (alone,) = forward(llama, [Row([*PROMPT, 10, 11, 12, 13], [Block()])])
    torch.testing.assert_close(rows[1], alone[-2:], atol=1e-9, rtol=0)


@pytest.mark.parametrize(
    ("layout", "visible"),
    [("combined", True), ("contiguous", True), ("interleaved", False), ("independent", False)],
)
def test_what_one_worker_feeds_is_visible_in_the_same_forward(llama, layout, visible):
    rows = {
        token: _write(llama, _team(llama, 2, layout), {0: [10], 1: [token]}) for token in (20, 21)
    }
    assert visible != torch.equal(rows[20][0], rows[21][0])


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_dropped_step_leaves_nothing_behind(llama, layout):
    team = _team(llama, 2, layout)
    _write(llama, team, {1: [20, 21]})
    team.drop(1)
    other = _team(llama, 2, layout)
    after, never = (_write(llama, each, {0: [10, 11]})[0] for each in (team, other))
    assert torch.equal(after, never)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_reader_changes_nothing_for_the_workers(llama, layout):
    with_reader, without = (_team(llama, 2, layout) for _ in range(2))
    for team in (with_reader, without):
        _write(llama, team, {0: [10], 1: [20]})
    rows = [Row([30 + worker], with_reader.view(worker)) for worker in (0, 1)]
    reader = Block()
    *workers, _ = forward(llama, [*rows, Row([50], with_reader.reader_view(reader))])
    expected = _write(llama, without, {0: [30], 1: [31]})
    torch.testing.assert_close(workers, list(expected.values()), atol=1e-9, rtol=0)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_reader_reads_all_live_steps_as_others_in_every_layout(llama, layout):
    team = _team(llama, 2, layout)
    _write(llama, team, {0: [10], 1: [20]})
    own = Block()
    assert [block.tokens for block in team.reader_view(own)] == [
        PROMPT,
        OTHERS,
        [10],
        [20],
        OWN,
        [],
    ]


def test_headers_computed_after_the_prompt_differ_from_isolated_ones(llama):
    rows = [
        _write(llama, _team(llama, 2, "combined", after_prompt=after_prompt), {0: [10]})[0]
        for after_prompt in (False, True)
    ]
    assert (rows[0] - rows[1]).abs().max() > 1e-3


@pytest.mark.parametrize("composition", ["mixed", "separate"])
def test_a_written_case_replays_to_its_own_logits(models, tmp_path, composition):
    folder = make_model(tmp_path / "case", "qwen3", seed=3)
    write_case(folder, CaseSpec(workers=3, layout="combined", composition=composition))
    trace, logits = load_trace(folder)
    assert largest_difference(folder, replay(folder)) < 1e-5
    assert {len(entry["workers"]) for entry in trace["trace"]} >= (
        {3} if composition == "mixed" else {1, 3}
    )
    assert sum(len(entry["finished_steps"]) for entry in trace["trace"]) > 5
    assert len(logits) == len(trace["trace"]) == 40


def test_a_case_with_other_logits_is_told_apart(tmp_path):
    folder = make_model(tmp_path / "case", "llama")
    write_case(folder, CaseSpec(workers=2, layout="combined", forwards=8))
    trace = json.loads((folder / "trace.json").read_text())
    trace["case"]["layout"] = "interleaved"
    (folder / "trace.json").write_text(json.dumps(trace))
    assert largest_difference(folder, replay(folder)) > 1e-2
