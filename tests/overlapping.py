"""Views of one memory, and whether they share elements, by looking at every byte."""

from __future__ import annotations

import random
from collections.abc import Iterator

import torch
from torch import Tensor

#: Sizes and strides, and whether two elements are in one place.
BY_HAND = [
    ((4, 3), (1, 1), True),  # t.unfold(0, 3, 1)
    ((4, 3), (3, 1), False),
    ((3, 4), (1, 3), False),
    ((2, 3), (0, 1), True),
    ((1, 3), (0, 1), False),
    ((0, 3), (0, 1), False),
    ((3, 2), (2, 3), False),  # 0 3, 2 5, 4 7
    ((4, 3), (2, 3), True),  # 6 is three twos and two threes
    ((2, 2, 2), (3, 2, 1), True),  # 3 is two and one
    ((2, 2, 2), (4, 2, 1), False),
    ((10, 10, 10), (1, 100, 10), False),
    ((3, 2, 2), (2, 3, 20), False),
    ((30, 30, 30), (901, 31, 1), True),  # 901 is 29 times 31, and two
    ((30, 30, 30), (930, 31, 1), False),
    ((100, 100), (101, 103), False),
    ((104, 102), (101, 103), True),  # 103 times 101, and 101 times 103
]


def places(tensor: Tensor, base: Tensor) -> list[int]:
    """Return the first byte of each element of `tensor`, counted from the first of `base`."""
    size = tensor.element_size()
    found = [tensor.data_ptr() - base.data_ptr()]
    for extent, stride in zip(tensor.shape, tensor.stride(), strict=True):
        found = [place + i * stride * size for place in found for i in range(extent)]
    return found


def overlaps_itself(tensor: Tensor, base: Tensor) -> bool:
    """Return whether two elements of a view of `base` are in one place."""
    found = places(tensor, base)
    return len(set(found)) < len(found)


def share_elements(one: Tensor, other: Tensor, base: Tensor) -> bool:
    """Return whether elements of two views of `base` have a byte in common."""
    taken = [
        {place + i for place in places(tensor, base) for i in range(tensor.element_size())}
        for tensor in (one, other)
    ]
    return bool(taken[0] & taken[1])


def views(seed: int, count: int) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """Give a memory with a view of it in float32 and one in int64, `count` times."""
    draw = random.Random(seed)
    for _ in range(count):
        base = torch.zeros(200)
        found = []
        for memory in (base, base.view(torch.int64)):
            sizes = [draw.randint(1, 4) for _ in range(draw.randint(0, 3))]
            strides = [draw.randint(0, 9) for _ in sizes]
            found.append(memory.as_strided(sizes, strides, draw.randint(0, 12)))
        yield base, found[0], found[1]
