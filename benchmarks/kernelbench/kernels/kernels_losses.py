"""Kernels for losses and attention: sums written out, and mistakes."""

import torch
from kinds import in_double


def _cross_entropy(scores, target):
    logs = torch.log_softmax(scores, 1).gather(1, target[:, None])
    return -logs.sum() / target.shape[0]


def _cross_entropy_unshifted(scores, target):
    return (scores.exp().sum(1).log() - scores.gather(1, target[:, None])[:, 0]).mean()


def _huber(prediction, target):
    d = (prediction - target).abs()
    return torch.where(d < 1, d * d / 2, d - 0.5).sum() / d.numel()


def _attention(q, k, v):
    scores = (q[:, :, :, None] * k[:, :, None]).sum(-1) / q.shape[-1] ** 0.5
    return torch.softmax(scores, -1) @ v


def _triplet(anchor, positive, negative, margin):
    near = torch.linalg.vector_norm(anchor - positive, dim=1)
    far = torch.linalg.vector_norm(anchor - negative, dim=1)
    each = near - far + margin
    return torch.where(each <= 0, 0.0, each).sum() / len(each)


RIGHT = {
    "mse_loss": in_double(lambda p, t: ((p - t) * (p - t)).sum() / p.numel()),
    "cross_entropy": in_double(_cross_entropy),
    "huber_loss": in_double(_huber),
    "attention": in_double(_attention),
    "kl_div": in_double(lambda p, t: (t * (t.log() - p.log())).sum() / t.shape[0]),
    "triplet_margin": in_double(_triplet),
    "hinge_loss": in_double(lambda p, t: torch.relu(1 - p * t).sum() / p.numel()),
}
WRONG = {
    "mse_loss": lambda p, t: ((p - t) ** 2).sum(1).mean(),
    "cross_entropy": _cross_entropy_unshifted,
    "huber_loss": lambda p, t: ((p - t) ** 2 / 2).clamp(max=0.5).mean(),
    "attention": lambda q, k, v: torch.softmax(q @ k.transpose(2, 3), -1) @ v,
    "kl_div": lambda p, t: (t * (t.log() - p.log())).mean(),
    "triplet_margin": lambda a, p, n, margin: _triplet(a, p, n, 1.0),
    "hinge_loss": lambda p, t: (1 - p * t).mean(),
}
