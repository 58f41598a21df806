"""Kernels for convolutions: shifted views times the weight at each place, and mistakes."""

import itertools

import torch
from kinds import in_double
from torch.nn import functional


def _conv(x, weight, stride=1, dilation=1, padding=()):
    """Add up products of the weight at each place with a shifted view."""
    sizes = weight.shape[2:]
    if padding:
        x = functional.pad(x, [p for one in reversed(padding) for p in (one, one)])
    outs = [
        (have - dilation * (size - 1) - 1) // stride + 1
        for have, size in zip(x.shape[2:], sizes, strict=True)
    ]
    total = x.new_zeros(x.shape[0], weight.shape[0], *outs)
    for place in itertools.product(*map(range, sizes)):
        starts = [dilation * one for one in place]
        window = tuple(
            slice(start, start + stride * (out - 1) + 1, stride)
            for start, out in zip(starts, outs, strict=True)
        )
        part = x[(slice(None), slice(None), *window)]
        at = (slice(None), slice(None), *place)
        total += torch.einsum("ni...,oi->no...", part, weight[at])
    return total


def _transposed(x, weight, stride=1):
    sizes = weight.shape[2:]
    outs = [stride * (have - 1) + size for have, size in zip(x.shape[2:], sizes, strict=True)]
    total = x.new_zeros(x.shape[0], weight.shape[1], *outs)
    for place in itertools.product(*map(range, sizes)):
        window = tuple(
            slice(start, start + stride * (have - 1) + 1, stride)
            for start, have in zip(place, x.shape[2:], strict=True)
        )
        at = (slice(None), slice(None), *place)
        total[(slice(None), slice(None), *window)] += torch.einsum("ni...,io->no...", x, weight[at])
    return total


def _depthwise(x, weight, padding=0):
    x = functional.pad(x, [padding] * 4)
    height, width = x.shape[2] - 2, x.shape[3] - 2
    return sum(
        x[:, :, r : r + height, s : s + width] * weight[:, r, s, None, None]
        for r in range(3)
        for s in range(3)
    )


def _separable(x, depth, point):
    return torch.einsum("nchw,oc->nohw", _depthwise(x, depth, 1), point)


def _biased(y, bias):
    return y + bias[:, None, None]


RIGHT = {
    "conv1d": in_double(_conv),
    "conv1d_dilated_strided": in_double(lambda x, w: _conv(x, w, 2, 2)),
    "conv2d": in_double(lambda x, w, b: _biased(_conv(x, w), b)),
    "conv2d_asymmetric": in_double(_conv),
    "conv2d_dilated_padded": in_double(lambda x, w: _conv(x, w, 1, 2, (1, 2))),
    "conv3d": in_double(_conv),
    "conv_transposed1d": in_double(_transposed),
    "conv_transposed2d": in_double(lambda x, w: _transposed(x, w, 2)),
    "conv_transposed3d": in_double(_transposed),
    "depthwise": in_double(_depthwise),
    "depthwise_separable": in_double(_separable),
    "pointwise": in_double(lambda x, w, b: _biased(torch.einsum("nchw,oc->nohw", x, w), b)),
}
WRONG = {
    # The weight is flipped, as in mathematics.
    "conv1d": lambda x, w: functional.conv1d(x, w.flip(2)),
    "conv1d_dilated_strided": lambda x, w: functional.conv1d(x, w, stride=2, padding=1)[
        :, :, : (x.shape[2] - 3) // 2
    ],
    "conv2d": lambda x, w, b: functional.conv2d(x, w),
    "conv2d_asymmetric": lambda x, w: functional.conv2d(x, w.bfloat16().float()),
    "conv2d_dilated_padded": lambda x, w: functional.conv2d(
        functional.pad(x, (2, 2, 1, 1), mode="replicate"), w, dilation=2
    ),
    "conv3d": lambda x, w: functional.conv3d(x, w.transpose(2, 4)),
    "conv_transposed1d": lambda x, w: functional.conv1d(x, w.transpose(0, 1), padding=2),
    "conv_transposed2d": lambda x, w: functional.conv_transpose2d(x, w.flip(2, 3), stride=2),
    "conv_transposed3d": lambda x, w: functional.conv_transpose3d(x[:1], w).expand(
        x.shape[0], -1, -1, -1, -1
    ),
    "depthwise": lambda x, w: _depthwise(x, w[:1]),
    "depthwise_separable": lambda x, d, p: functional.pad(
        _separable(x, d, p)[:, :, 1:-1, 1:-1], [1] * 4
    ),
    "pointwise": lambda x, w, b: torch.einsum("nchw,oc->nohw", x, w) + b[:1],
}
