"""Operators that are wrong for cases of every form that a snippet has to write out."""

import sys
from typing import Any

import torch
from jaxtyping import Complex64, Float, Float32, Int
from torch import Tensor

import opsmith

#: Whether `strided` is right.
MENDED = False
#: Whether the reference of `large` refuses what its kernel gets wrong.
CHOOSY = False


@opsmith.op("failing::small")
def small(x: Float32[Tensor, "N C"], shift: float) -> Float32[Tensor, "N C"]:
    return x * 2 + shift


@small.register_kernel("cpu")
def _(x: Tensor, shift: float) -> Tensor:
    return x * 3 + shift


@opsmith.op("failing::strided")
def strided(x: Float32[Tensor, "N C"]) -> Float32[Tensor, "N C"]:
    return x * 2


@strided.register_kernel("cpu")
def _(x: Tensor) -> Tensor:
    return x * 2 if x.is_contiguous() or MENDED else x * 3


@opsmith.op("failing::large")
def large(x: Float32[Tensor, "N"]) -> Float32[Tensor, "N"]:
    if CHOOSY and x.numel() >= 20:
        raise ValueError("so large a one makes no sense")
    return x * 2


@large.register_kernel("cpu")
def _(x: Tensor) -> Tensor:
    return x * 2 if x.numel() < 20 else x * 3


@opsmith.op("failing::writes", mutates_args=("x",))
def writes(x: Float32[Tensor, "N"], by: float = 2.0) -> None:
    x.mul_(by)


@writes.register_kernel("cpu")
def _(x: Tensor, by: float = 2.0) -> None:
    x.mul_(by).add_(1)


@opsmith.op("failing::various")
def various(
    xs: list[Float32[Tensor, "N"]], z: Complex64[Tensor, "M"], i: Int[Tensor, "M"], name: str | None
) -> tuple[Float32[Tensor, "N"], Complex64[Tensor, "M"]]:
    total = torch.stack(xs).sum(0) if xs else torch.zeros(0)
    return total, z * i


@various.register_cases(only=True)
def _(dtype: torch.dtype, seed: int) -> Any:
    z = torch.tensor([complex(1, float("inf")), complex(-0.0, 2)])
    xs = [torch.tensor([float("nan"), -1e-30]), torch.ones(2)]
    yield {"xs": xs, "z": z, "i": torch.tensor([3, -1], dtype=dtype), "name": None}


@various.register_kernel("cpu")
def _(xs: list[Tensor], z: Tensor, i: Tensor, name: str | None) -> tuple[Tensor, Tensor]:
    return torch.stack(xs).sum(0), z + i


@opsmith.op("failing::slope")
def slope(xs: list[Float32[Tensor, "N"]], y: Float32[Tensor, "N"]) -> Float32[Tensor, "N"]:
    return sum(xs, y * 2)


@slope.register_autograd
def _(ctx: Any, grad: Tensor) -> Any:
    return [grad] * ctx.count, grad


def _count(ctx: Any, inputs: Any, output: Any) -> None:
    ctx.count = len(inputs[0])


slope.register_autograd(slope.rule.backward, setup_context=_count)


@opsmith.op("failing::strided_slope")
def strided_slope(x: Float32[Tensor, "N C"]) -> Float32[Tensor, "N C"]:
    return x * 2


@strided_slope.register_autograd
def _(ctx: Any, grad: Tensor) -> Tensor:
    return grad * 2 if grad.is_contiguous() else grad * 3


@opsmith.op("failing::translated")
def translated(x: Float32[Tensor, "N"], slope: float) -> Float32[Tensor, "N"]:
    return torch.where(x < 0, x * slope, x)


translated.register_onnx("LeakyRelu", opset=16, attributes={"alpha": 0.25})
TRANSLATED_AT = sys._getframe().f_lineno - 1


@opsmith.op("failing::first_five")
def first_five(x: Float32[Tensor, "N"]) -> Float32[Tensor, "N"]:
    return x * 2


@first_five.register_cases(only=True)
def _(dtype: torch.dtype, seed: int) -> Any:
    yield from ({"x": torch.arange(float(size))} for size in (3, 7))


@first_five.register_onnx(opset=16)
def first_five_to_onnx(op: Any, x: Any) -> Any:
    return op.Mul(op.Slice(x, [0], [5]), 2.0)


@opsmith.op("failing::trebled")
def trebled(x: Float[Tensor, "N"]) -> Float[Tensor, "N"]:
    return x * 2


trebled.register_kernel("cpu", source="native/trebled.cpp")


@trebled.register_autograd
def trebled_backward(ctx: Any, grad: Tensor) -> Tensor:
    return grad * 4


#: The checks of targets that fail, of each operator.
ROUTES = {
    translated: ["onnx-standard", "onnx-standard-torchscript"],
    first_five: ["onnx-standard"],
    trebled: [
        "onnxruntime",
        "onnx-library",
        "aotinductor-cpp",
        "jax-vmap",
        "python",
        "tvm_ffi",
        "tvm_ffi_torch",
        "tvm_ffi_jax",
    ],
}


@opsmith.op("failing::undeclared")
def undeclared(x: Float32[Tensor, "N C"]) -> Float32[Tensor, "N C"]:
    return x * 2


@undeclared.register_kernel("cpu")
def _(x: Tensor) -> Tensor:
    result = x * 2
    x.zero_()
    return result


@opsmith.op("failing::same")
def same(x: Float32[Tensor, "N"], y: Float32[Tensor, "N"]) -> Float32[Tensor, "N"]:
    return x + y


@same.register_kernel("cpu")
def _(x: Tensor, y: Tensor) -> Tensor:
    return x + y if x.data_ptr() != y.data_ptr() else x + 1 + y


@opsmith.op("failing::sizes_fixed")
def sizes_fixed(x: Float32[Tensor, "N C"]) -> Float32[Tensor, "N C"]:
    return x * 2


@sizes_fixed.register_autograd
def _(ctx: Any, grad: Tensor) -> Tensor:
    rows, columns = (int(size) for size in grad.shape)
    return grad.new_full((rows, columns), 2.0) * grad


#: What a snippet that makes one call shows, and by which check.
ALL = {
    small: "reference",
    strided: "layouts",
    large: "reference",
    writes: "reference",
    various: "reference",
    slope: "gradient",
    strided_slope: "gradient",
}
