"""The right results of the CUDA kernels that have a fault, and of the same without it."""

import torch


def copied(x):
    return x


def total(x):
    return x.sum().expand(len(x))


def turned(x):
    return torch.cat([part.flip(0) for part in x.split(96)])


def turned_by_64(x):
    return torch.cat([part.flip(0) for part in x.split(64)])


def neighbours(x):
    padded = torch.zeros(32)
    padded[: min(len(x), 32)] = x[:32]
    swapped = padded[torch.arange(32) ^ 1]
    return torch.cat([swapped[: len(x)], torch.zeros(max(0, len(x) - 32))])


def first(x):
    return x[:1].expand(len(x))


def count(x):
    return torch.full_like(x, len(x))


def total_of_96(x):
    return x[:96].sum().expand(len(x))


def total_of_exponentials(x):
    return x.exp().sum().expand(len(x))


def reversed_(x):
    return x.flip(0)


def greatest(x):
    return x.max().expand(len(x))


def any_above_half(x):
    return (x > 0.5).any().float().expand(len(x))


def sums_of_four(x):
    return x.view(-1, 4).sum(1, keepdim=True).expand(-1, 4).flatten()


def sums_before_in_warps(x):
    return torch.cat([part.cumsum(0) - part for part in x.split(32)])


def greatest_before(x):
    return torch.cat([torch.zeros(1), x.cummax(0).values[:-1]])


def squared(x):
    square = x.half().float().view(16, 16)
    return (2 * square @ square).flatten()


def squared_in_bfloat16(x):
    square = x.bfloat16().float().view(16, 16)
    return (2 * square @ square).flatten()


def summed(x):
    return x.cumsum(0)


def in_order(x):
    return x.sort().values


def falling(x):
    return x.sort(descending=True).values


def seven(x):
    return torch.full_like(x, 7)
