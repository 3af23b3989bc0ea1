"""Training: its lessons, its checkpoints, and what it makes, on a real server."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest
import torch
import typer

from bench.worklist import arms, run
from bench.worklist.examples import IGNORED, Encoder, batches, lists, snapshots
from bench.worklist.model import LOOK_BACK, new_model
from bench.worklist.train import Setting, Training
from hogwild_sgl.transcript import load_results
from hogwild_sgl.worklist import is_worklist_model, tokenizer, words
from hogwild_sgl.worklist.task import Split

TINY = Setting(updates=3, tokens=600, rate=1e-3, seed=0)


@pytest.fixture(scope="module")
def untrained(tmp_path_factory) -> Path:
    return Training(TINY, tmp_path_factory.mktemp("untrained"), "cpu").export()


def test_the_first_heads_begin_by_looking_back():
    torch.manual_seed(0)
    model = new_model(len(tokenizer.build()))
    model.set_attn_implementation("eager")
    ids = torch.randint(260, 500, (1, 12))
    with torch.no_grad():
        (weights,) = model(ids, output_attentions=True).attentions[0]
    for head, distance in enumerate(LOOK_BACK):
        assert weights[head, 11].argmax() == 11 - distance


def test_a_batch_holds_about_as_many_tokens_as_asked_for_and_pads_nothing_to_be_learned():
    encoder = Encoder()
    source = batches(snapshots(random.Random(0), Split.TRAIN, 8), encoder, 1500)
    for _ in range(5):
        batch = next(source)
        assert batch.ids.numel() <= 1500
        learned = batch.labels != IGNORED
        assert learned.any(1).all()
        assert (batch.ids[learned] == batch.labels[learned]).all()


def test_lists_name_each_item_once_in_every_repeat():
    some = next(lists(random.Random(0), 9, repeats=2, names=True))
    start = some.view.index(words.PREAMBLE)
    names = [piece for piece in some.view if piece.strip() in words.ITEM_NAMES]
    count = sum(piece.strip() in words.ITEM_NAMES for piece in some.view[:start])
    assert sorted(names[count : 2 * count]) == sorted(names[2 * count :]) == sorted(names[:count])
    assert not any(some.learn[: start + 1])


def test_training_goes_on_from_its_checkpoint(tmp_path):
    def losses(updates: int) -> list[int]:
        setting = Setting(updates, TINY.tokens, TINY.rate, TINY.seed)
        return [figures["update"] for figures in Training(setting, tmp_path, "cpu").run()]

    assert losses(2) == [2]
    resumed = Training(Setting(4, TINY.tokens, TINY.rate, TINY.seed), tmp_path, "cpu")
    assert resumed.update == 2
    assert losses(4) == [4]
    log = [json.loads(line) for line in (tmp_path / "log.jsonl").read_text().splitlines()]
    assert [figures["update"] for figures in log] == [2, 4]
    assert all(0 <= figures["choice"] <= 1 for figures in log)


def test_a_model_is_known_by_its_mark(untrained, tmp_path):
    assert is_worklist_model(untrained) and not is_worklist_model(tmp_path)
    with pytest.raises(typer.BadParameter, match="was not made by"):
        run.main(model=tmp_path, reach=True, tasks=2, concurrency=1, out=tmp_path)


def test_the_experiment_plays_every_arm_and_goes_on_where_it_was(
    untrained, tmp_path, monkeypatch, capsys
):
    monkeypatch.setattr(arms, "LIMIT", 3)
    wanted = list(arms.reach_arms())

    def play(tasks: int) -> list[str]:
        # An untrained model reaches no figure.
        with pytest.raises(typer.Exit) as ended:
            run.main(model=untrained, reach=True, tasks=tasks, concurrency=4, out=tmp_path)
        assert ended.value.exit_code == 1
        return capsys.readouterr().out.splitlines()

    lines = play(2)
    assert len(lines) == 11 and sum("SHORT" in line for line in lines) >= 6
    before = {path.name: path.read_text() for path in tmp_path.glob("*.jsonl")}
    assert set(before) == {f"{arm.name}.jsonl" for arm in wanted}
    for arm in wanted:
        results = list(load_results(tmp_path / f"{arm.name}.jsonl"))
        assert sorted(result.seed for result in results) == [0, 1]
        for result in results:
            assert result.passes <= arm.budget + 48
            writers = {step.worker for step in result.steps if step.kind == "step"}
            assert writers == set(range(arm.workers))
    # One transcript is lost: only that task is played again.
    victim = tmp_path / f"{wanted[-1].name}.jsonl"
    victim.write_text(before[victim.name].splitlines()[0] + "\n")
    play(2)
    assert len(list(load_results(victim))) == 2
    others = {path.name: path.read_text() for path in tmp_path.glob("*.jsonl") if path != victim}
    assert others == {name: text for name, text in before.items() if name != victim.name}
