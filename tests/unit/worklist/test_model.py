"""Training: its lessons, its checkpoints, and what it makes, on a real server."""

from __future__ import annotations

import itertools
import json
import math
import random
from pathlib import Path

import pytest
import torch
import typer

from hogwild_sgl.bench.worklist import arms, run, train
from hogwild_sgl.bench.worklist.examples import IGNORED, Encoder, batches, lists, teams
from hogwild_sgl.bench.worklist.model import LOOK_BACK, new_model
from hogwild_sgl.bench.worklist.train import Setting, Training
from hogwild_sgl.transcript import load_results
from hogwild_sgl.worklist import is_worklist_model, tokenizer, words
from hogwild_sgl.worklist.task import Split

TINY = Setting(updates=3, tokens=600, rate=1e-3, seed=0)


@pytest.fixture(scope="module")
def untrained(tmp_path_factory) -> Path:
    return Training(TINY, tmp_path_factory.mktemp("untrained"), "cpu").export()


def test_the_first_heads_begin_by_looking_back():
    torch.manual_seed(0)
    model = new_model(len(tokenizer.build()), Encoder().names)
    model.set_attn_implementation("eager")
    ids = torch.randint(260, 500, (1, 12))
    with torch.no_grad():
        (weights,) = model(ids, output_attentions=True).attentions[0]
    for head, distance in enumerate(LOOK_BACK):
        assert weights[head, 11].argmax() == 11 - distance


def test_before_any_training_the_model_finds_again_what_followed_a_word():
    torch.manual_seed(0)
    encoder = Encoder()
    model = new_model(len(tokenizer.build()), encoder.names)
    right = total = 0
    source = lists(random.Random(0), 24, repeats=3, names=False)
    for some in itertools.islice(source, 6):
        batch = encoder.batch([some])
        with torch.no_grad():
            best = model(batch.ids[None], use_cache=False).logits[0].argmax(-1)
        wanted = batch.labels != IGNORED
        right += int((best == batch.labels)[wanted].sum())
        total += int(wanted.sum())
    # By chance it would be one in 500.
    assert right > 0.1 * total


def test_a_batch_holds_about_as_many_pieces_as_asked_for_each_with_the_next_one_as_its_label():
    encoder = Encoder()
    source = batches(teams(random.Random(0), Split.TRAIN, 8), encoder, 1500)
    for _ in range(5):
        batch = next(source)
        assert len(batch.ids) == len(batch.labels) == sum(map(len, batch.places)) <= 1500
        following = batch.ids.roll(-1)
        first = torch.cat([places.positions for places in batch.places]) == 0
        inside = (batch.labels != IGNORED) & ~first.roll(-1)
        assert (batch.labels[inside] == following[inside]).all()
        # Behind the last computed piece of a segment comes a break, or a step was cut off.
        last = (batch.labels != IGNORED) & first.roll(-1)
        assert encoder.ids[words.BREAK] in batch.labels[last]


def test_what_is_rarely_to_be_decided_weighs_more():
    encoder = Encoder()
    some = next(p for p in teams(random.Random(0), Split.TRAIN, 6) if len(p.rare) > 2)
    batch = encoder.batch([some])
    heavy = batch.weights > 1
    assert int(heavy.sum()) == len(some.rare)
    rare = sorted(encoder.ids[some.segments[segment][index]] for segment, index in some.rare)
    assert sorted(batch.labels[heavy].tolist()) == rare


def test_lists_name_each_item_once_in_every_repeat():
    some = next(lists(random.Random(0), 9, repeats=2, names=True))
    (pieces,), (learn,) = some.segments, some.learn
    start = pieces.index(words.PREAMBLE)
    names = [piece for piece in pieces if piece.strip() in words.ITEM_NAMES]
    count = sum(piece.strip() in words.ITEM_NAMES for piece in pieces[:start])
    assert sorted(names[count : 2 * count]) == sorted(names[2 * count :]) == sorted(names[:count])
    assert not any(learn[: start + 1])


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


@pytest.mark.parametrize(
    ("goal", "longest", "last"), [(math.inf, 1.0, 2), (-math.inf, 0.4, 1), (-math.inf, 1.0, 0)]
)
def test_a_lesson_ends_when_it_is_learned_or_has_had_its_share(
    tmp_path, monkeypatch, goal, longest, last
):
    lessons = [train.Lesson("copy", largest, goal, longest) for largest in (2, 3, 4)]
    monkeypatch.setattr(train, "LESSONS", lessons)
    setting = Setting(6, TINY.tokens, TINY.rate, TINY.seed)
    assert [f["lesson"] for f in Training(setting, tmp_path, "cpu").run()] == [last]


def test_where_several_names_are_as_good_all_of_them_are_right():
    encoder = Encoder()
    some = next(lists(random.Random(0), 2, repeats=1, names=True))
    good = encoder.batch([some, some]).good(max(encoder.ids.values()) + 1)
    names = {encoder.ids[piece] for piece in some.choices[min(some.choices)]}
    assert len(good) == 2 * 7 and len(names) == 2
    for row in (good[0], good[7]):
        assert set(row.nonzero().flatten().tolist()) == names
    # Of the rest one piece each is right: numbers, the name that is left, the end.
    rest = [i for i, wanted in enumerate(some.learn[0]) if wanted][1:]
    assert good[1:7].nonzero().tolist() == [
        [row, encoder.ids[some.segments[0][i]]] for row, i in enumerate(rest)
    ]


def test_each_good_piece_is_to_be_likelier_than_all_bad_ones_and_as_likely_as_the_other_good_ones():
    good = torch.tensor([[True, True, False, False]])

    def loss(*logits: float) -> float:
        return train.losses(torch.tensor([logits]), good).item()

    assert loss(20.0, 20.0, 0.0, 0.0) < 1e-6
    # All good ones beat the bad, one of them is hardly ever drawn.
    assert loss(40.0, 20.0, 0.0, 0.0) == pytest.approx(train.EVEN * (10 - math.log(2)), abs=1e-5)
    # One that is missed costs its half of what it would cost alone, whatever the other.
    missed = math.log1p(2 * math.exp(3.0))
    uneven = 23 / 2 - math.log(2)
    assert loss(20.0, -3.0, 0.0, 0.0) == pytest.approx(missed / 2 + train.EVEN * uneven, abs=1e-5)
    # With one good piece it is the cross entropy.
    logits = torch.randn(5, 7, generator=torch.manual_seed(0))
    labels = torch.arange(5)
    assert torch.allclose(
        train.losses(logits, torch.nn.functional.one_hot(labels, 7).bool()),
        torch.nn.functional.cross_entropy(logits, labels, reduction="none"),
        atol=1e-5,
    )


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
