"""Memory in huge pages."""

from __future__ import annotations

import torch

from runtime_patch.cpu import pages


def test_memory_is_zero_and_begins_where_a_huge_page_can():
    for size in (1, pages.PAGE - 1, 3 * pages.PAGE + 7):
        memory = pages.empty(size)
        assert memory.shape == (size,)
        assert memory.data_ptr() % pages.PAGE == 0
        assert not memory.any()


def test_moved_parameters_keep_their_values_and_identity():
    model = torch.nn.Sequential(torch.nn.Linear(7, 5), torch.nn.Linear(5, 3).bfloat16())
    parameters = list(model.parameters())
    values = [parameter.detach().clone() for parameter in parameters]
    places = [parameter.data_ptr() for parameter in parameters]
    parameters[0].weight_loader = "kept"
    pages.move(parameters)
    assert list(model.parameters()) == parameters
    assert parameters[0].weight_loader == "kept"
    for parameter, value, place in zip(parameters, values, places, strict=True):
        assert torch.equal(parameter, value) and parameter.dtype == value.dtype
        assert parameter.data_ptr() != place
        assert parameter.data_ptr() % 64 == 0
        assert parameter.is_contiguous()


def test_moved_parameters_do_not_share_elements():
    first, second = (torch.nn.Parameter(torch.ones(5)) for _ in range(2))
    pages.move([first, second])
    first.data.zero_()
    assert second.sum() == 5


def test_memory_outlives_the_function_that_asked_for_it():
    def make() -> torch.Tensor:
        return pages.empty(4 * pages.PAGE).view(torch.float32)[:10].fill_(2)

    assert make().sum() == 20
