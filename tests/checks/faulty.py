"""Operators with one fault each, and what must find it."""

import warnings
from collections.abc import Iterator
from typing import Annotated, Any

import torch
from jaxtyping import Float, Float32
from torch import Tensor

import opsmith
from opsmith import Between

FAULTS: dict[str, tuple[opsmith.Operator, str, str]] = {}


def fault(check: str, words: str):
    """Note which check must find the fault, and words that its message must have."""

    def note(operator: opsmith.Operator) -> opsmith.Operator:
        FAULTS[f"{operator.signature.name}-{check}-{len(FAULTS)}"] = (operator, check, words)
        return operator

    return note


@fault("reference", "expected")
@opsmith.op("faults::off_by_one")
def off_by_one(x: Float[Tensor, "N K"]) -> Float[Tensor, "N"]:
    return x.sum(-1)


@off_by_one.register_kernel("cpu")
def _(x: Tensor) -> Tensor:
    return x[:, 1:].sum(-1)


@fault("reference", "expected")
@opsmith.op("faults::last_element")
def last_element(x: Float[Tensor, "N"]) -> Float[Tensor, "N"]:
    return x * 2


@last_element.register_kernel("cpu")
def _(x: Tensor) -> Tensor:
    # As a vectorised loop that forgets its rest.
    out = x.clone()
    whole = x.shape[0] // 4 * 4
    out[:whole] *= 2
    return out


@fault("reference", "bfloat16")
@opsmith.op("faults::narrow_sum")
def narrow_sum(x: Float[Tensor, "N K"]) -> Float[Tensor, "N"]:
    return x.sum(-1)


@narrow_sum.register_kernel("cpu")
def _(x: Tensor) -> Tensor:
    # In bfloat16, 256 + 1 is 256.
    out = x.new_zeros(x.shape[0])
    for k in range(x.shape[1]):
        out = out + x[:, k]
    return out


@narrow_sum.register_cases
def _(dtype: torch.dtype, seed: int) -> Iterator[dict[str, Any]]:
    yield {"x": torch.ones(1, 1500, dtype=dtype)}


@fault("gradient", "the gradient of 'x'")
@opsmith.op("faults::wrong_gradient")
def wrong_gradient(x: Float[Tensor, "N"]) -> Float[Tensor, "N"]:
    return x.sin()


@wrong_gradient.register_autograd
def _(ctx: Any, grad: Tensor) -> Tensor:
    return 123 * grad


@fault("gradient", "is None")
@opsmith.op("faults::missing_gradient")
def missing_gradient(x: Float[Tensor, "N"], y: Float[Tensor, "N"]) -> Float[Tensor, "N"]:
    return x + 3 * y


@missing_gradient.register_autograd
def _(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
    return grad, None


@fault("gradcheck", "gradcheck: ")
@opsmith.op("faults::wrong_numeric_gradient")
def wrong_numeric_gradient(x: Float[Tensor, "N"]) -> Float[Tensor, "N"]:
    return torch.from_numpy(x.detach().float().numpy() * 2).to(x.dtype)


@wrong_numeric_gradient.register_autograd
def _(ctx: Any, grad: Tensor) -> Tensor:
    return 3 * grad


@fault("fake", "the fake kernel gives strides (1, 2), the kernel (2, 1)")
@opsmith.op("faults::fake_strides")
def fake_strides(x: Float[Tensor, "N C"]) -> Float[Tensor, "N C"]:
    return x * 2


@fake_strides.register_fake
def _(x: Tensor) -> Tensor:
    return torch.empty_like(x).t().contiguous().t()


@fault("export", "")
@fault("compile", "compiled again for other sizes")
@fault("fake", "fixes dimension 0 of 'x'")
@opsmith.op("faults::fake_specialises")
def fake_specialises(x: Float[Tensor, "N C"]) -> Float[Tensor, "N C"]:
    return x * 2


@fake_specialises.register_fake
def _(x: Tensor) -> Tensor:
    return x.new_empty(int(x.shape[0]), x.shape[1])


@fault("fake", "gives shape")
@opsmith.op("faults::fake_shape")
def fake_shape(x: Float[Tensor, "N"]) -> Float[Tensor, "N"]:
    return x * 2


@fake_shape.register_fake
def _(x: Tensor) -> Tensor:
    return x.new_empty(x.shape[0] + 1)


@fault("layouts", "transposed")
@opsmith.op("faults::ignores_strides")
def ignores_strides(x: Float[Tensor, "N C"]) -> Float[Tensor, "N C"]:
    return x * 2


@ignores_strides.register_kernel("cpu")
def _(x: Tensor) -> Tensor:
    return x.as_strided(x.shape, (x.shape[1], 1), 0) * 2


@fault("layouts", "expanded")
@opsmith.op("faults::ignores_stride_zero")
def ignores_stride_zero(x: Float[Tensor, "N C"]) -> Float[Tensor, "N C"]:
    return x * 2


@ignores_stride_zero.register_kernel("cpu")
def _(x: Tensor) -> Tensor:
    return torch.where(torch.tensor(0 in x.stride() and x.numel() > 0), x, x * 2)


@fault("mutation", "argument 'x' was changed")
@opsmith.op("faults::mutates")
def mutates(x: Float[Tensor, "N"]) -> Float[Tensor, "N"]:
    return x * 2


@mutates.register_kernel("cpu")
def _(x: Tensor) -> Tensor:
    out = x * 2
    x.mul_(2)
    return out


@fault("aliasing", "in the memory of an argument")
@opsmith.op("faults::alias")
def alias(x: Float[Tensor, "N"]) -> Float[Tensor, "N"]:
    return x.clone()


@alias.register_kernel("cpu")
def _(x: Tensor) -> Tensor:
    return x.view_as(x)


@fault("aliasing", "result 1 shares memory with the result")
@opsmith.op("faults::twins")
def twins(x: Float[Tensor, "N"]) -> tuple[Float[Tensor, "N"], Float[Tensor, "N"]]:
    return x * 2, x * 2


@twins.register_kernel("cpu")
def _(x: Tensor) -> tuple[Tensor, Tensor]:
    out = x * 2
    return out, out


@fault("determinism", "two equal calls gave different bits")
@opsmith.op("faults::random")
def random(x: Float[Tensor, "N"]) -> Float[Tensor, "N"]:
    return x * 2


@random.register_kernel("cpu")
def _(x: Tensor) -> Tensor:
    return x * 2 * (1 + torch.finfo(x.dtype).eps * torch.randint(0, 2, x.shape).to(x.dtype))


@fault("determinism", "the first is wrong: the result[0] is ")
@fault("determinism", "1 thread and 2 threads gave different bits: the result[0] is ")
@opsmith.op("faults::by_threads")
def by_threads(x: Float[Tensor, "N"]) -> Float[Tensor, "N"]:
    return x * 2


@by_threads.register_kernel("cpu")
def _(x: Tensor) -> Tensor:
    return x * 2 if torch.get_num_threads() > 1 else x * 3


@fault("parallel-dims", "the slice 0:1 along N")
@opsmith.op("faults::not_parallel", parallel_dims=("N",))
def not_parallel(x: Float[Tensor, "N C"]) -> Float[Tensor, "N C"]:
    return x.softmax(0)


@fault("vmap", "vmap over x")
@opsmith.op("faults::wrong_vmap")
def wrong_vmap(x: Float[Tensor, "N"]) -> Float[Tensor, "N"]:
    return x.cumsum(0)


@wrong_vmap.register_vmap
def _(info: Any, in_dims: Any, x: Tensor) -> Any:
    return x.cumsum(0), in_dims[0]


@fault("empty-sizes", "IndexError")
@opsmith.op("faults::empty")
def empty(x: Float[Tensor, "N"]) -> Float[Tensor, "N"]:
    return x * 2


@empty.register_kernel("cpu")
def _(x: Tensor) -> Tensor:
    x[0]
    return x * 2


@fault("dispatch", "not the 'cpu' kernel")
@opsmith.op("faults::never_ran")
def never_ran(x: Float[Tensor, "N"]) -> Float[Tensor, "N"]:
    return x * 2


@never_ran.register_kernel("cpu")
def _(x: Tensor) -> Tensor:
    return x + x


# As a vendor's backend does that registers its own kernel for everything.
_OVERRIDE = torch.library.Library("faults", "IMPL")
with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # that it overrides is what it is for
    _OVERRIDE.impl("never_ran", lambda x: x * 2, "CPU", allow_override=True)


@fault("validation", "accepted, expected an error")
@opsmith.op("faults::accepts_all")
def accepts_all(
    x: Float[Tensor, "N"], index: Annotated[Float32[Tensor, "M"], Between(0, 1)], k: int
) -> Float[Tensor, "N"]:
    return x * 2


_OVERRIDE.impl("accepts_all", lambda x, index, k: x * 2, "CPU", allow_override=True)


@fault("validation", "does not begin with 'faults::foreign_words: '")
@opsmith.op("faults::foreign_words")
def foreign_words(
    x: Float[Tensor, "N"], rows: Annotated[Float[Tensor, "M"], Between(0, 1)]
) -> Float[Tensor, "M"]:
    return rows * 2


def _foreign(x: Tensor, rows: Tensor) -> Tensor:
    if x.dim() != 1 or rows.dim() != 1 or rows.min() < 0 or rows.max() > 1:
        raise RuntimeError("Shape mismatch")
    return rows * 2


_OVERRIDE.impl("foreign_words", _foreign, "CPU", allow_override=True)


@fault("opcheck", "")
@opsmith.op("faults::fails_opcheck")
def fails_opcheck(x: Float[Tensor, "N"]) -> Float[Tensor, "N"]:
    return x * 2


@fails_opcheck.register_fake
def _(x: Tensor) -> Tensor:
    return x.new_empty(x.shape, dtype=torch.float64)


@fault("reference", "bfloat16")
@opsmith.op("faults::one_dtype")
def one_dtype(x: Float[Tensor, "N"]) -> Float[Tensor, "N"]:
    return x * 2


@one_dtype.register_kernel("cpu")
def _(x: Tensor) -> Tensor:
    # NumPy has no bfloat16.
    return torch.from_numpy(x.numpy() * 2)


@fault("reference", "the reference refuses every sampled case")
@opsmith.op("faults::refuses_all")
def refuses_all(x: Float[Tensor, "N"]) -> Float[Tensor, "N"]:
    raise ValueError("never")
