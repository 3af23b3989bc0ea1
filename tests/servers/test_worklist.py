"""The trained model that comes with the package."""

from __future__ import annotations

import random

import pytest
import torch
from transformers import AutoTokenizer, LlamaForCausalLM

from hogwild_sgl.bench.worklist import attention, run
from hogwild_sgl.bench.worklist.arms import Arm
from hogwild_sgl.bench.worklist.examples import IGNORED, NAMES, Encoder
from hogwild_sgl.bench.worklist.simulate import LAYOUTS, Collaboration, Forward, Play, Step
from hogwild_sgl.lang.endpoint import Endpoint
from hogwild_sgl.launch.server_process import ServerProcess
from hogwild_sgl.programs.worklist import PROGRAM
from hogwild_sgl.transcript import Result
from hogwild_sgl.worklist import is_worklist_model, model_dir, tokenizer, words
from hogwild_sgl.worklist.task import Split, draw_task, task_of

TASKS = 4


@pytest.fixture(scope="module")
def model():
    found = LlamaForCausalLM.from_pretrained(model_dir(), dtype=torch.float32)
    found.set_attn_implementation(attention.NAME)
    return found


@pytest.fixture(scope="module")
def backend():
    with ServerProcess(model_dir(), run.SERVER) as server, Endpoint(server.url) as endpoint:
        yield endpoint


def logits(model: LlamaForCausalLM, play: Play) -> tuple[torch.Tensor, torch.Tensor]:
    """(n, vocabulary) for the pieces to learn, and these as ids, (n,)."""
    batch = Encoder().batch([play])
    wanted = batch.labels != IGNORED
    with torch.no_grad():
        hidden = attention.hidden_states(model, batch.ids, batch.places)
        return model.lm_head(hidden[wanted]), batch.labels[wanted]


def as_computed(result: Result, layout: str) -> Play:
    """A run as training would compute it: who wrote what in which forward, up to the one in
    which the last line begins. Steps that the end of a run cuts off leave no transcript, but
    were seen."""
    split = tokenizer.build()
    team = Collaboration(task_of(result.problem), result.workers, layout, random.Random(0))
    assert all(step.kind == "step" for step in result.steps)
    steps = sorted(result.steps, key=lambda step: step.index)
    when = {}
    for segment, step in enumerate(steps, len(team.so_far().segments)):
        # The break in front of a step is fed with it, or carried over from the last one.
        fed = split.tokenize("\n\n" + step.fed.removeprefix("\n\n"))
        pieces = [*fed, *split.tokenize(step.text.removesuffix("\n\n"))]
        own = Step(step.worker, segment, pieces, len(fed), len(fed), 0)
        when[segment] = (step.start_pass, step.end_pass, own)
        team.steps.append(own)
    until = min(step.start_pass for step in steps if words.ALL_DONE in step.text) + 1
    for now in range(1, until + 1):
        team.live = {own.worker: own for start, end, own in when.values() if start < now <= end}
        team.published = [own for _, end, own in when.values() if end < now]
        for own in team.live.values():
            own.shown = own.computed + 1 if own.computed else own.start
        for own in team.live.values():
            view = (*team.before_step(own.worker), (own.segment, own.shown))
            team.forwards.append(Forward(own.segment, own.computed, own.shown, view))
            own.computed = own.shown
    return team.so_far()


def test_it_is_one_of_its_kind_with_the_vocabulary_of_today():
    assert is_worklist_model(model_dir())
    shipped = AutoTokenizer.from_pretrained(model_dir())
    assert shipped.get_vocab() == tokenizer.build().get_vocab()


@pytest.mark.parametrize("layout", LAYOUTS)
def test_it_chooses_as_the_simulated_workers_do_on_lists_of_a_size_it_was_not_trained_on(
    model, layout
):
    encoder, right = Encoder(), []
    for seed in range(TASKS):
        rng = random.Random(f"{layout} {seed}")
        play = Collaboration(draw_task(rng, 16, Split.TEST), NAMES[:3], layout, rng).run()
        found, _ = logits(model, play)
        good = encoder.batch([play]).good(found.shape[1])
        right += good[torch.arange(len(good)), found.argmax(-1)].tolist()
    assert len(right) > 16 * 20 * TASKS
    assert sum(right) > 0.99 * len(right)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_server_writes_what_the_computation_of_training_says(model, backend, layout):
    """At temperature 0, piece by piece, but where two pieces are about as likely."""
    arm = Arm(3, layout, items=8, temperature=0.0)
    for number in range(2):
        problem = run.test_task(number, arm.items).prompt
        result = PROGRAM.solve(problem, arm.settings(seed=number), backend=backend)
        assert result.stopped == "stop"
        found, written = logits(model, as_computed(result, layout))
        behind = found.max(-1).values - found[torch.arange(len(written)), written]
        assert len(written) > 8 * 18
        # bfloat16 on the server, float32 here.
        assert behind.max() < 0.5
