"""Kernels for windows: shifted views that are combined, and mistakes."""

import functools
import itertools

import torch
from kinds import in_double
from torch.nn import functional


def _windows(x, rank):
    """Yield the elements at each place of windows of two by two."""
    sizes = [size // 2 * 2 for size in x.shape[2:]]
    for starts in itertools.product((0, 1), repeat=rank):
        place = tuple(slice(start, size, 2) for start, size in zip(starts, sizes, strict=True))
        yield x[(slice(None), slice(None), *place)]


def _largest(x, rank):
    return functools.reduce(torch.maximum, _windows(x, rank)).clone()


def _mean(x, rank):
    return sum(_windows(x, rank)) / 2**rank


def _mean_of_three(x):
    y = functional.pad(x, (1, 1))
    return (y[..., :-2] + y[..., 1:-1] + y[..., 2:]) / 3


def _without_nan(x, rank):
    return functools.reduce(torch.fmax, _windows(x, rank)).clone()


RIGHT = {
    "max_pool1d": lambda x: torch.maximum(torch.maximum(x[..., :-2], x[..., 1:-1]), x[..., 2:]),
    "max_pool2d": lambda x: _largest(x, 2),
    "max_pool3d": lambda x: _largest(x, 3),
    "avg_pool1d": in_double(_mean_of_three),
    "avg_pool2d": in_double(lambda x: _mean(x, 2)),
    "avg_pool3d": in_double(lambda x: _mean(x, 3)),
}
WRONG = {
    # Begins with zero in place of the least number.
    "max_pool1d": lambda x: RIGHT["max_pool1d"](x).clamp(min=0),
    "max_pool2d": lambda x: _without_nan(x, 2),
    "max_pool3d": lambda x: _largest(x.abs(), 3),
    "avg_pool1d": lambda x: functional.avg_pool1d(x, 3, 1, 1, count_include_pad=False),
    "avg_pool2d": lambda x: _mean(x, 2) * 0.999,
    "avg_pool3d": lambda x: _largest(x, 3),
}
