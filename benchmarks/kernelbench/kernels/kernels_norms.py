"""Kernels for normalisations: moments written out, and mistakes."""

import torch
from kinds import in_double


def _normalised(x, dims, eps=1e-5):
    count = 1
    for dim in dims:
        count *= x.shape[dim]
    mean = x.sum(dims, keepdim=True) / count
    centred = x - mean
    return centred / torch.sqrt((centred * centred).sum(dims, keepdim=True) / count + eps)


def _affine(x, weight, bias):
    shape = (1, -1) + (1,) * (x.dim() - 2)
    return x * weight.view(shape) + bias.view(shape)


def _group(x, weight, bias, eps=1e-5, groups=2):
    parts = x.reshape(x.shape[0], groups, x.shape[1:].numel() // groups)
    return _affine(_normalised(parts, (2,), eps).reshape(x.shape), weight, bias)


def _one_pass(x, dims):
    """Return variances as differences of large numbers."""
    mean = x.mean(dims, keepdim=True)
    return (x - mean) / torch.sqrt((x * x).mean(dims, keepdim=True) - mean * mean + 1e-5)


RIGHT = {
    "batch_norm": in_double(lambda x, w, b: _affine(_normalised(x, (0, 2, 3)), w, b)),
    "instance_norm": in_double(lambda x: _normalised(x, (2, 3))),
    "group_norm": in_double(_group),
    "rms_norm": in_double(lambda x: x * ((x * x).sum(1, keepdim=True) / x.shape[1] + 1e-5) ** -0.5),
    "frobenius_norm": in_double(lambda x: x / (x * x).sum().sqrt()),
    "l1_norm": in_double(lambda x: x * x.shape[1] / x.abs().sum(1, keepdim=True)),
    "l2_norm": in_double(lambda x: x / (x * x).sum(1, keepdim=True).sqrt()),
    "layer_norm": in_double(lambda x, w, b: _normalised(x, (2,)) * w + b),
}
WRONG = {
    "batch_norm": lambda x, w, b: _affine(_normalised(x, (2, 3)), w, b),
    "instance_norm": lambda x: _normalised(x, (2, 3), 1e-3),
    "group_norm": lambda x, w, b: _group(x, w, b, groups=1),
    "rms_norm": lambda x: x / torch.sqrt((x * x).mean(1, keepdim=True)),
    "frobenius_norm": lambda x: x / torch.linalg.vector_norm(x, dim=(1, 2, 3), keepdim=True),
    "l1_norm": lambda x: x / x.abs().sum(1, keepdim=True),
    "l2_norm": lambda x: x / ((x * x).sum(1, keepdim=True).sqrt() + 1e-2),
    "layer_norm": lambda x, w, b: _one_pass(x, (2,)) * w + b,
}
