"""Faults in gradients, and in what transforms and compilers are told."""

from __future__ import annotations

import torch
from jaxtyping import Float, Float32
from pairs import Each, pair
from torch import Tensor
from torch.autograd.function import once_differentiable

KIND = "gradients"


def sine(x: Float[Tensor, "N"]) -> Float[Tensor, "N"]:
    return x.sin()


def _save_x(ctx, inputs, output):
    ctx.save_for_backward(inputs[0])


def _right_sine(ctx, grad):
    return grad * ctx.saved_tensors[0].cos()


def _first_row(ctx, grad):
    x = ctx.saved_tensors[0]
    out = grad * x.cos()
    return torch.cat([out[:1], out[1:] * 0.5])


def _linear_grad(ctx, grad):
    x = ctx.saved_tensors[0]
    read = grad.clone() if grad.is_contiguous() else grad.new_ones(grad.shape)
    return read * x.cos()


def _narrow(ctx, grad):
    return (grad.bfloat16() * ctx.saved_tensors[0].bfloat16().cos()).to(grad.dtype)


pair(
    KIND,
    "a constant gradient",
    sine,
    backward=(lambda ctx, grad: 123 * grad, _right_sine),
    setup=_save_x,
    said={"gradient": ("the gradient of 'x'",)},
)
for name, wrong in {
    "no gradient but zeros": lambda ctx, grad: torch.zeros_like(grad),
    "a gradient for the first element alone": _first_row,
    "a gradient that expects contiguous memory": _linear_grad,
    "a gradient in bfloat16": _narrow,
    "the sign of the gradient": lambda ctx, grad: -grad * ctx.saved_tensors[0].cos(),
    "a gradient written over the incoming one": lambda ctx, grad: grad.mul_(
        ctx.saved_tensors[0].cos()
    ),
    "a saved tensor written": lambda ctx, grad: grad * ctx.saved_tensors[0].cos_(),
}.items():
    pair(KIND, name, sine, backward=(wrong, _right_sine), setup=_save_x)


def _save_slope(ctx, inputs, output):
    ctx.save_for_backward(inputs[0].cos())


TWICE = "gradients of gradients"

pair(
    TWICE,
    "a second derivative that is silently zero",
    sine,
    setup=_save_x,
    backward=(lambda ctx, grad: grad * ctx.saved_tensors[0].detach().cos(), _right_sine),
    row="double-backward",
)
pair(
    TWICE,
    "a slope saved that autograd takes for a constant",
    sine,
    setup=_save_slope,
    backward=(
        lambda ctx, grad: grad * ctx.saved_tensors[0],
        once_differentiable(lambda ctx, grad: grad * ctx.saved_tensors[0]),
    ),
    row="double-backward",
)
pair(
    TWICE,
    "a gradient that leaves autograd altogether",
    sine,
    setup=_save_x,
    backward=(
        lambda ctx, grad: _right_sine(ctx, grad).detach(),
        once_differentiable(_right_sine),
    ),
    row="double-backward",
)


def _unrecorded_sine(ctx, grad):
    with torch.set_grad_enabled(grad.requires_grad):
        return _right_sine(ctx, grad)


pair(
    TWICE,
    "a backward that records where its gradient is recorded",
    sine,
    setup=_save_x,
    backward=(_unrecorded_sine, _right_sine),
    row="nested-gradients",
)


def product(x: Float[Tensor, "N"], y: Float[Tensor, "N"]) -> Float[Tensor, "N"]:
    return x * y


def _save_both(ctx, inputs, output):
    ctx.save_for_backward(*inputs)


def _right_product(ctx, grad):
    x, y = ctx.saved_tensors
    return grad * y, grad * x


pair(
    KIND,
    "the gradients of two arguments swapped",
    product,
    setup=_save_both,
    backward=(lambda ctx, grad: _right_product(ctx, grad)[::-1], _right_product),
)
pair(
    KIND,
    "no gradient for the second argument",
    product,
    setup=_save_both,
    backward=(lambda ctx, grad: (_right_product(ctx, grad)[0], None), _right_product),
    said={"gradient": ("is None",)},
)
pair(
    KIND,
    "a gradient only where both are wanted",
    product,
    setup=_save_both,
    backward=(
        lambda ctx, grad: (
            _right_product(ctx, grad) if all(ctx.needs_input_grad[:2]) else (None, None)
        ),
        _right_product,
    ),
)


def biased(x: Float[Tensor, "N C"], bias: Float[Tensor, "C"]) -> Float[Tensor, "N C"]:
    return x + bias


pair(
    KIND,
    "a broadcast gradient not added up",
    biased,
    backward=(
        lambda ctx, grad: (grad, grad[0] if grad.shape[0] else grad.sum(0)),
        lambda ctx, grad: (grad, grad.sum(0)),
    ),
)


def doubled_elsewhere(x: Float[Tensor, "N"]) -> Float[Tensor, "N"]:
    return torch.from_numpy(x.detach().float().numpy() * 2).to(x.dtype)


pair(
    KIND,
    "the gradient of what autograd cannot follow",
    doubled_elsewhere,
    backward=(lambda ctx, grad: 3 * grad, lambda ctx, grad: 2 * grad),
    row="gradcheck",
    said={"gradcheck": ("gradcheck: ",)},
)


def two(x: Float[Tensor, "N"]) -> tuple[Float[Tensor, "N"], Float[Tensor, "N"]]:
    return x * 2, x * 3


pair(
    KIND,
    "the gradient of the second result forgotten",
    two,
    backward=(
        lambda ctx, first, second: 2 * first,
        lambda ctx, first, second: 2 * first + 3 * second,
    ),
)

PARALLEL = "parallel dimensions"


def normalised(x: Float32[Tensor, "N C"]) -> Float32[Tensor, "N C"]:
    return x - x.mean(1, keepdim=True)


pair(
    PARALLEL,
    "a dimension that is not parallel",
    normalised,
    parallel_dims=Each(("C",), ("N",)),
    said={"parallel-dims": ("the slice 0:1 along C",)},
)


def running(x: Float32[Tensor, "N C"]) -> Float32[Tensor, "N C"]:
    return x.cumsum(0)


pair(PARALLEL, "a scan along a parallel dimension", running, parallel_dims=Each(("N",), ("C",)))

FAKE = "fake kernels"


def kept_rows(x: Float32[Tensor, "N C"]) -> Float32[Tensor, "N C"]:
    return x * 2


def _right_fake(x):
    return torch.empty_like(x, memory_format=torch.contiguous_format)


for name, wrong, said in (
    ("a fake kernel with another dtype", lambda x: _right_fake(x).double(), {"opcheck": ()}),
    (
        "a fake kernel with other strides",
        lambda x: _right_fake(x).t().contiguous().t(),
        {"fake": ("the fake kernel gives strides (1, ",)},
    ),
    (
        "a fake kernel with another shape",
        lambda x: x.new_empty(x.shape[0], x.shape[1] + 1),
        {"fake": ("gives shape",)},
    ),
    (
        "a fake kernel that fixes a size",
        lambda x: x.new_empty(int(x.shape[0]), x.shape[1]),
        {
            "fake": ("fixes dimension 0 of 'x'",),
            "compile": ("compiled again for other sizes",),
            "export": (),
        },
    ),
    ("a fake kernel that gives its argument", lambda x: x, {}),
):
    pair(FAKE, name, kept_rows, fake=(wrong, _right_fake), said=said)


def half_as_many(x: Float32[Tensor, "N"]) -> Float32[Tensor, "(N+1)//2"]:
    return x[::2].clone()


pair(
    FAKE,
    "a fake kernel that is wrong for odd sizes",
    half_as_many,
    fake=(lambda x: x.new_empty(x.shape[0] // 2), lambda x: x.new_empty((x.shape[0] + 1) // 2)),
)

EXPORTED, TRACED = "sizes that export fixes", "sizes that tracing fixes"

_FIRST: dict[int, int] = {}


def _as_first_seen(x):
    return x.new_empty(_FIRST.setdefault(x.dim(), x.shape[0]), x.shape[1])


for name, wrong in {
    "a fake kernel with the size of its first call": _as_first_seen,
    "a fake kernel made of Python's numbers": lambda x: x.new_empty([int(n) for n in x.shape]),
}.items():
    pair(EXPORTED, name, kept_rows, fake=(wrong, _right_fake), row="fake")


def _by_its_size(x):
    # Both are right, but a trace keeps the one that it took.
    return x.new_empty(x.shape) if x.shape[0] % 2 else _right_fake(x)


def _gradient_of_numbers(ctx, grad):
    rows, columns = (int(size) for size in grad.shape)
    return grad.new_full((rows, columns), 2.0) * grad


pair(
    TRACED,
    "a fake kernel that asks whether a size is even",
    kept_rows,
    fake=(_by_its_size, _right_fake),
    row="compile",
)
pair(
    TRACED,
    "a backward made of Python's numbers",
    kept_rows,
    backward=(_gradient_of_numbers, lambda ctx, grad: 2 * grad),
    row="compile",
)
