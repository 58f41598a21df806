"""Kernels for functions of elements: by exponentials and selections, and mistakes."""

import math

import torch
from kinds import in_double

# The constants of SELU.
ALPHA, SCALE = 1.6732632423543772848170429916717, 1.0507009873554804934193349852946


def _softmax(x):
    e = torch.exp(x - x.max(1, keepdim=True).values) if x.shape[1] else x
    return e / e.sum(1, keepdim=True)


def _log_softmax(x):
    if not x.shape[1]:
        return x
    shifted = x - x.max(1, keepdim=True).values
    return shifted - shifted.exp().sum(1, keepdim=True).log()


def _tanh(x):
    e = torch.expm1(2 * x.clamp(-30, 30))
    return e / (e + 2)


def _new_gelu(x):
    z = 2 * math.sqrt(2 / math.pi) * (x + 0.044715 * x * x * x)
    return x * torch.sigmoid(z)


RIGHT = {
    "relu": lambda x: torch.where(x <= 0, 0.0, x),
    "leaky_relu": lambda x, slope: torch.where(x > 0, x, x * slope),
    "sigmoid": in_double(lambda x: 1 / (1 + torch.exp(-x))),
    "tanh": in_double(_tanh),
    "softmax": in_double(_softmax),
    "log_softmax": in_double(_log_softmax),
    "swish": in_double(lambda x: x * (1 / (1 + torch.exp(-x)))),
    "gelu": in_double(lambda x: x * 0.5 * torch.special.erfc(-x / math.sqrt(2))),
    "selu": in_double(lambda x: SCALE * torch.where(x > 0, x, ALPHA * torch.expm1(x))),
    "hardsigmoid": in_double(lambda x: ((x + 3) / 6).clamp(0, 1)),
    "softplus": in_double(
        lambda x: torch.where(x > 20, x, torch.log1p(torch.exp(x.clamp(max=20))))
    ),
    "softsign": in_double(lambda x: x / (x.abs() + 1)),
    "elu": in_double(lambda x, alpha: torch.where(x > 0, x, alpha * torch.expm1(x))),
    "hardtanh": lambda x: torch.where(x > 1, 1.0, torch.where(x < -1, -1.0, x)),
    "new_gelu": in_double(_new_gelu),
}
SOURCES = {"relu": "relu.cpp"}
WRONG = {
    "relu": lambda x: torch.where(x > 0, x, 0.0),
    "leaky_relu": lambda x, slope: torch.where(x > 0, x, x * 0.01),
    "sigmoid": lambda x: torch.exp(x) / (1 + torch.exp(x)),
    "tanh": lambda x: (torch.exp(2 * x) - 1) / (torch.exp(2 * x) + 1),
    "softmax": lambda x: torch.exp(x) / torch.exp(x).sum(1, keepdim=True),
    "log_softmax": lambda x: x - torch.log(torch.exp(x).sum(1, keepdim=True)),
    "swish": lambda x: x * torch.exp(x) / (1 + torch.exp(x)),
    "gelu": lambda x: torch.nn.functional.gelu(x, approximate="tanh"),
    "selu": lambda x: 1.05 * torch.where(x > 0, x, 1.673 * torch.expm1(x)),
    "hardsigmoid": lambda x: (x * 0.2 + 0.5).clamp(0, 1),
    "softplus": lambda x: torch.log(1 + torch.exp(x)),
    "softsign": lambda x: x / (1 + x),
    "elu": lambda x, alpha: torch.where(x > 0, x, torch.expm1(x)),
    "hardtanh": lambda x: x.clamp(-1),
    "new_gelu": lambda x: 0.5 * x * (1 + torch.erf(x / math.sqrt(2))),
}
