"""Seeded draws: decided by seed and position alone, from the right distribution."""

from __future__ import annotations

import pytest
import torch
from sglang.srt.layers.sampler import top_k_top_p_min_p_sampling_from_probs_torch

from runtime_patch.patches.sampling import FilterPatch, draw, keep_likeliest

PROBS = torch.tensor([0.5, 0.3, 0.15, 0.05, 0.0])


def _draws(count: int, seed: int = 7) -> torch.Tensor:
    logprobs = PROBS.log().expand(count, -1)
    return draw(logprobs, torch.full((count,), seed), torch.arange(count)).squeeze(1)


def test_a_draw_does_not_depend_on_the_rest_of_its_batch():
    rows = [draw(PROBS.log()[None], torch.tensor([7]), torch.tensor([at])) for at in range(50)]
    assert torch.equal(torch.cat(rows).squeeze(1), _draws(50))


def test_another_seed_or_position_draws_anew():
    assert not torch.equal(_draws(50), _draws(50, seed=8))
    assert not torch.equal(_draws(51)[1:], _draws(50))


def test_draws_follow_the_probabilities():
    counts = torch.bincount(_draws(4000), minlength=5) / 4000
    assert counts[4] == 0
    torch.testing.assert_close(counts, PROBS, atol=0.03, rtol=0)


@pytest.mark.parametrize("top_k", [2, 5])
@pytest.mark.parametrize("top_p", [0.7, 1.0])
@pytest.mark.parametrize("min_p", [0.0, 0.2, 0.5, 1.0])
def test_min_p_leaves_the_tokens_that_sglang_leaves_without_seeds(top_k, top_p, min_p):
    def support(sample, seed):
        count = 200
        out = sample(
            *(PROBS.repeat(count, 1), torch.full((count,), top_k), torch.full((count,), top_p)),
            *(torch.full((count,), min_p), True, seed, torch.arange(count)),
            return_filtered_probs=True,
        )
        weights, tokens = out[1], out[2]
        return sorted(tokens[0][weights[0] > 0].tolist())

    def seeded(*args, **more):
        return FilterPatch().around(_without_draw, *args, **more)

    expected = support(top_k_top_p_min_p_sampling_from_probs_torch, None)
    assert support(seeded, torch.full((200,), 3)) == expected


def _without_draw(*args, **more):
    """SGLang's sampler; the patched draw would take the seeds, here only the filter counts."""
    return top_k_top_p_min_p_sampling_from_probs_torch(*args[:5], None, *args[6:], **more)


@pytest.mark.parametrize("others", [2, 5])
def test_a_draw_does_not_depend_on_how_the_rest_of_its_batch_filters(others, monkeypatch):
    monkeypatch.setattr("sglang.srt.layers.sampler.multinomial_with_seed", draw)
    count = 60
    alone = FilterPatch().around(
        _must_not_run,
        *(PROBS.repeat(count, 1), torch.full((count,), 5), torch.ones(count), torch.zeros(count)),
        *(False, torch.full((count,), 7), torch.arange(count)),
    )
    assert torch.equal(alone.long(), _draws(count)), "SGLang's path for rows without filters"
    mixed = FilterPatch().around(
        _must_not_run,
        PROBS.repeat(2 * count, 1),
        torch.cat([torch.full((count,), 5), torch.full((count,), others)]),
        torch.cat([torch.ones(count), torch.full((count,), 0.6)]),
        torch.cat([torch.zeros(count), torch.full((count,), 0.3)]),
        *(True, torch.full((2 * count,), 7), torch.arange(count).repeat(2)),
    )
    assert torch.equal(mixed[:count], alone)
    assert mixed[count:].max() <= 1, "0.5 and 0.3 reach 0.6"


def test_what_top_k_and_top_p_leave_stays_where_it_was():
    probs = torch.tensor([[0.1, 0.4, 0.2, 0.3]]).repeat(3, 1)
    kept = keep_likeliest(probs, torch.tensor([4, 2, 4]), torch.tensor([1.0, 1.0, 0.35]))
    assert torch.equal(kept[0], probs[0])
    assert kept[1].tolist() == pytest.approx([0, 0.4, 0, 0.3])
    assert kept[2].tolist() == pytest.approx([0, 0.4, 0, 0])


def _must_not_run(*args, **more):
    raise AssertionError("a seeded batch has been drawn by SGLang's own order")
