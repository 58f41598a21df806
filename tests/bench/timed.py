"""Operators whose kernels are slow, wrong, or only look fast."""

import threading
import time

import torch
from jaxtyping import Float
from torch import Tensor

import opsmith

SIZES = {"N": 8, "C": 16}


@opsmith.op("timed::slow")
def slow(x: Float[Tensor, "N C"]) -> Float[Tensor, "N C"]:
    time.sleep(0.01)
    return x + 1


@slow.register_kernel("cpu")
def _(x):
    time.sleep(0.02)
    return x + 1


slow.register_sizes(SIZES)


@slow.register_cost
def cost(N, C, itemsize):
    return opsmith.Cost(bytes=2 * N * C * itemsize, operations=N * C)


@opsmith.op("timed::remembers")
def remembers(x: Float[Tensor, "N C"]) -> Float[Tensor, "N C"]:
    return x + 1


known: dict[int, Tensor] = {}


@remembers.register_kernel("cpu")
def _(x):
    if x.data_ptr() not in known:
        known[x.data_ptr()] = x + 1
    return known[x.data_ptr()].clone()


remembers.register_sizes(SIZES)


@opsmith.op("timed::works_on")
def works_on(x: Float[Tensor, "N C"]) -> Float[Tensor, "N C"]:
    return x + 1


@works_on.register_kernel("cpu")
def _(x):
    out = torch.empty_like(x)
    right = x + 1

    def finish():
        time.sleep(0.002)
        out.copy_(right)

    threading.Thread(target=finish).start()
    return out


works_on.register_sizes(SIZES)


@opsmith.op("timed::wrong")
def wrong(x: Float[Tensor, "N C"]) -> Float[Tensor, "N C"]:
    return x + 1


@wrong.register_kernel("cpu")
def _(x):
    return x + 1.001


wrong.register_sizes(SIZES, {"N": 2})


@opsmith.op("timed::boasts")
def boasts(x: Float[Tensor, "N C"]) -> Float[Tensor, "N C"]:
    return x + 1


boasts.register_sizes(SIZES)
boasts.register_cost(lambda N: opsmith.Cost(bytes=10**15 * N))


@opsmith.op("timed::squared")
def squared(x: Float[Tensor, "N C"]) -> Float[Tensor, "N C"]:
    return x * x


squared.register_kernel("cpu", lambda x: x * x)


@squared.register_autograd(setup_context=lambda ctx, inputs, output: ctx.save_for_backward(*inputs))
def _(ctx, grad):
    time.sleep(0.005)
    return 2 * grad * ctx.saved_tensors[0]


squared.register_sizes(SIZES)


@opsmith.op("timed::wrong_gradient")
def wrong_gradient(x: Float[Tensor, "N C"]) -> Float[Tensor, "N C"]:
    return x * x


wrong_gradient.register_kernel("cpu", lambda x: x * x)


@wrong_gradient.register_autograd(
    setup_context=lambda ctx, inputs, output: ctx.save_for_backward(*inputs)
)
def _(ctx, grad):
    return 2.01 * grad * ctx.saved_tensors[0]


wrong_gradient.register_sizes(SIZES)


@opsmith.op("timed::detached")
def detached(x: Float[Tensor, "N C"]) -> Float[Tensor, "N C"]:
    return torch.from_numpy(x.detach().numpy() + 1)


@detached.register_autograd
def _(ctx, grad):
    return grad


detached.register_sizes(SIZES)


@opsmith.op("timed::crashes")
def crashes(x: Float[Tensor, "N C"]) -> Float[Tensor, "N C"]:
    return x + 1


@crashes.register_kernel("cpu")
def _(x):
    raise SystemError("no such luck")


crashes.register_sizes(SIZES)
