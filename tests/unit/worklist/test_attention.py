"""What training computes is what a shared cache holds."""

from __future__ import annotations

import random

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers.models.llama.modeling_llama import apply_rotary_pos_emb

from hogwild_sgl.bench.worklist import attention
from hogwild_sgl.bench.worklist.examples import NAMES, Encoder, lists
from hogwild_sgl.bench.worklist.model import new_model
from hogwild_sgl.bench.worklist.simulate import LAYOUTS, OTHERS, OWN, Collaboration, Forward, Play
from hogwild_sgl.worklist import tokenizer
from hogwild_sgl.worklist.task import Split, draw_task


@pytest.fixture(scope="module")
def model():
    torch.manual_seed(0)
    return new_model(len(tokenizer.build()), Encoder().names).double()


def play(seed: int, items: int, workers: int, layout: str) -> Play:
    rng = random.Random(seed)
    task = draw_task(rng, items, Split.TRAIN)
    return Collaboration(task, NAMES[:workers], layout, rng, checks=True).run()


def computed_at_once(model, plays: list[Play]) -> torch.Tensor:
    batch = Encoder().batch(plays)
    model.set_attn_implementation(attention.NAME)
    with torch.no_grad():
        return attention.hidden_states(model, batch.ids, batch.places)


def computed_forward_by_forward(model, play: Play) -> dict[tuple[int, int], torch.Tensor]:
    """The definition: keys and values stay as they are in the cache; for each forward the keys
    of the view are put in its order and turned to where they stand in it."""
    encoder, llama = Encoder(), model.model
    cache = [{} for _ in llama.layers]
    done = {}

    def turned(states: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        cos, sin = llama.rotary_emb(states, positions[None])
        return apply_rotary_pos_emb(states[None], states[None], cos, sin)[0][0]

    # Those of one forward write their keys before anyone looks; each layer in turn.
    for group in at_the_same_time(play.forwards):
        states = {}
        for forward in group:
            own = play.segments[forward.segment][forward.first : forward.last]
            states[forward] = llama.embed_tokens(torch.tensor([encoder.ids[p] for p in own]))
        for layer, kept in zip(llama.layers, cache, strict=True):
            heads = {}
            for forward in group:
                normed = layer.input_layernorm(states[forward])
                q, k, v = (
                    proj(normed).view(len(normed), -1, layer.self_attn.head_dim).transpose(0, 1)
                    for proj in (
                        layer.self_attn.q_proj,
                        layer.self_attn.k_proj,
                        layer.self_attn.v_proj,
                    )
                )
                heads[forward] = q
                for i in range(len(normed)):
                    kept[forward.segment, forward.first + i] = (k[:, i], v[:, i])
            for forward in group:
                view = [(s, i) for s, shown in forward.view for i in range(shown)]
                rows = torch.arange(len(view) - (forward.last - forward.first), len(view))
                keys = torch.stack([kept[place][0] for place in view], 1)
                values = torch.stack([kept[place][1] for place in view], 1)
                keys = turned(keys, torch.arange(len(view)))
                scores = turned(heads[forward], rows) @ keys.transpose(1, 2)
                scores = scores * layer.self_attn.scaling
                scores = scores.masked_fill(torch.arange(len(view)) > rows[:, None], -torch.inf)
                found = (scores.softmax(-1) @ values).transpose(0, 1).flatten(1)
                states[forward] = states[forward] + layer.self_attn.o_proj(found)
                states[forward] = states[forward] + layer.mlp(
                    layer.post_attention_layernorm(states[forward])
                )
        for forward in group:
            for i, state in enumerate(llama.norm(states[forward])):
                done[forward.segment, forward.first + i] = state
    return done


def at_the_same_time(forwards: tuple[Forward, ...]) -> list[list[Forward]]:
    """Forwards whose views show what another of the same group computes go together."""
    groups: list[list[Forward]] = []
    computed: dict[int, int] = {}
    waiting: list[Forward] = []
    for forward in forwards:
        waiting.append(forward)
        reach = computed | {one.segment: one.last for one in waiting}
        if all(reach.get(s, 0) >= shown for one in waiting for s, shown in one.view):
            groups.append(waiting)
            computed, waiting = reach, []
    assert not waiting
    return groups


@settings(max_examples=8, deadline=None)
@given(st.integers(0, 9999), st.integers(2, 4), st.integers(1, 4), st.sampled_from(LAYOUTS))
def test_a_play_at_once_is_what_its_forwards_compute_one_after_the_other(
    model, seed, items, workers, layout
):
    some = play(seed, items, workers, layout)
    at_once = computed_at_once(model, [some])
    with torch.no_grad():
        one_by_one = computed_forward_by_forward(model, some)
    expected = torch.stack([one_by_one[place] for place in sorted(one_by_one)])
    assert torch.allclose(at_once, expected, atol=1e-5)


def test_a_worker_by_itself_computes_a_plain_text(model):
    some = play(3, 9, 1, "independent")
    at_once = computed_at_once(model, [some])
    computed = some.computed
    encoder, text, rows, row = Encoder(), [], [], 0
    for segment in sorted(computed):
        own = some.segments[segment][: computed[segment]]
        if segment not in (OTHERS, OWN):  # nobody sees them here
            text += [encoder.ids[piece] for piece in own]
            rows += range(row, row + len(own))
        row += len(own)
    model.set_attn_implementation("sdpa")
    with torch.no_grad():
        plain = model.model(torch.tensor([text]), use_cache=False)[0][0]
    assert torch.allclose(at_once[rows], plain, atol=1e-5)


def test_a_list_is_computed_as_a_plain_text(model):
    some = next(lists(random.Random(0), 9, repeats=2, names=True))
    at_once = computed_at_once(model, [play(1, 3, 2, "combined"), some])[
        -len(some.segments[0]) + 1 :
    ]
    encoder = Encoder()
    model.set_attn_implementation("sdpa")
    with torch.no_grad():
        text = torch.tensor([[encoder.ids[piece] for piece in some.segments[0][:-1]]])
        plain = model.model(text, use_cache=False)[0][0]
    assert torch.allclose(at_once, plain, atol=1e-5)


def test_plays_of_one_batch_do_not_see_each_other(model):
    first, second = play(1, 3, 2, "combined"), play(2, 5, 3, "contiguous")
    together = computed_at_once(model, [first, second])
    apart = torch.cat([computed_at_once(model, [first]), computed_at_once(model, [second])])
    assert torch.allclose(together, apart, atol=1e-5)


def test_a_finished_step_keeps_what_its_writer_saw(model):
    """A plain text of the same view would not have it."""
    some = play(5, 4, 2, "combined")
    last = some.forwards[-1]
    encoder = Encoder()
    view = [encoder.ids[p] for s, shown in last.view for p in some.segments[s][:shown]]
    model.set_attn_implementation("sdpa")
    with torch.no_grad():
        plain = model.model(torch.tensor([view]), use_cache=False)[0][0, -1]
    at_once = computed_at_once(model, [some])
    row = sum(n for segment, n in some.computed.items() if segment <= last.segment) - 1
    assert (at_once[row] - plain).abs().max() > 1e-3
