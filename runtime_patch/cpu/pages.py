"""Memory in huge pages, for what every forward reads from one end to the other.

With pages of 4 KiB the processor spends half of its time on a weight finding out where the
next page is. Linux hands out pages of 2 MiB to memory that asks for them (transparent huge
pages in their default mode, ``madvise``); where it does not, all works as before.
"""

from __future__ import annotations

import math
import mmap
import sys
from collections.abc import Iterable

import torch

PAGE = 2 << 20
_LINE = 64


def empty(size: int) -> torch.Tensor:
    """uint8 ``[size]``, in huge pages where the system has them. It is zero."""
    if not sys.platform.startswith("linux"):
        return torch.zeros(size, dtype=torch.uint8)
    # One page more, so that a whole number of them can begin at a multiple of their size.
    memory = mmap.mmap(-1, size + PAGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    memory.madvise(mmap.MADV_HUGEPAGE)
    tensor = torch.frombuffer(memory, dtype=torch.uint8)
    start = -tensor.data_ptr() % PAGE
    return tensor[start : start + size]


def move(tensors: Iterable[torch.Tensor]) -> None:
    """Give tensors (parameters) new memory, side by side in huge pages, with their values.

    The old memory of each is free as soon as it has been copied, unless others hold it.
    """
    tensors = list(tensors)
    sizes = [math.ceil(t.numel() * t.element_size() / _LINE) * _LINE for t in tensors]
    memory = empty(sum(sizes))
    for tensor, place in zip(tensors, memory.split(sizes), strict=True):
        used = place[: tensor.numel() * tensor.element_size()]
        tensor.data = used.view(tensor.dtype).view(tensor.shape).copy_(tensor.data)
