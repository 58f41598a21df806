"""Functions of single elements, and softmaxes of rows."""

import math

import torch
from jaxtyping import Float32
from stated import task
from torch import Tensor
from torch.nn import functional

Rows = Float32[Tensor, "N C"]
SHAPE = (8, 70)


@task(19, x=SHAPE)
def relu(x: Rows) -> Rows:
    return functional.relu(x)


@task(20, x=SHAPE, slope=0.01)
def leaky_relu(x: Rows, slope: float) -> Rows:
    return functional.leaky_relu(x, slope)


@task(21, x=SHAPE)
def sigmoid(x: Rows) -> Rows:
    return functional.sigmoid(x)


@task(22, x=SHAPE)
def tanh(x: Rows) -> Rows:
    return functional.tanh(x)


@task(23, x=SHAPE)
def softmax(x: Rows) -> Rows:
    return functional.softmax(x, 1)


@task(24, x=SHAPE)
def log_softmax(x: Rows) -> Rows:
    return functional.log_softmax(x, 1)


@task(25, x=SHAPE)
def swish(x: Rows) -> Rows:
    return x * functional.sigmoid(x)


@task(26, x=SHAPE)
def gelu(x: Rows) -> Rows:
    return functional.gelu(x)


@task(27, x=SHAPE)
def selu(x: Rows) -> Rows:
    return functional.selu(x)


@task(28, x=SHAPE)
def hardsigmoid(x: Rows) -> Rows:
    return functional.hardsigmoid(x)


@task(29, x=SHAPE)
def softplus(x: Rows) -> Rows:
    return functional.softplus(x)


@task(30, x=SHAPE)
def softsign(x: Rows) -> Rows:
    return functional.softsign(x)


@task(31, x=SHAPE, alpha=1.0)
def elu(x: Rows, alpha: float) -> Rows:
    return functional.elu(x, alpha)


@task(32, x=SHAPE)
def hardtanh(x: Rows) -> Rows:
    return functional.hardtanh(x)


@task(88, x=SHAPE)
def new_gelu(x: Rows) -> Rows:
    inner = math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)
    return 0.5 * x * (1 + torch.tanh(inner))
