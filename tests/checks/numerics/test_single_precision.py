"""References that ask for single precision themselves, and those that round to fewer digits."""

from collections.abc import Callable
from dataclasses import dataclass, field

import pytest
import torch
from comparing import outcome
from jaxtyping import BFloat16, Float, Float16, Float32, Float64, Int32, Int64
from torch import Tensor

import opsmith
from opsmith import checks
from opsmith.checks.numerics.gradients import expected_gradients
from opsmith.checks.numerics.oracle import expected_of


def _in_order(a: Tensor, b: Tensor) -> Tensor:
    total = torch.zeros(a.shape[0], b.shape[0])
    for k in range(a.shape[1]):
        total += a[:, k, None].float() * b[None, :, k].float()
    return total


def _in_half(a: Tensor, b: Tensor) -> Tensor:
    return (a @ b.T).float()


def _without_the_last(a: Tensor, b: Tensor) -> Tensor:
    return a[:, :-1].float() @ b[:, :-1].float().T


@pytest.mark.parametrize(
    ("name", "kernel", "right"),
    [("order", _in_order, True), ("half", _in_half, False), ("last", _without_the_last, False)],
)
def test_sums_of_another_order_are_right_and_sums_of_less_precision_are_not(name, kernel, right):
    @opsmith.op(f"single_precision::{name}")
    def product(a: Float16[Tensor, "M 16"], b: Float16[Tensor, "N 16"]) -> Float32[Tensor, "M N"]:
        return a.float() @ b.float().T

    product.register_kernel("cpu")(kernel)
    report = checks.run(product, select=["reference"], isolate=False, examples=20)
    (row,) = (row for row in report.rows if row.check == "reference")
    assert (row.status == "passed") == right, row.explain()


def _momentum(x: Tensor, grad: Tensor, m: Tensor) -> None:
    """Take a step in double precision from a momentum that is kept in single."""
    m.copy_(0.9 * m.double() + grad)
    x.sub_(m.double() / (m.double().abs().sqrt() + 1))


def _momentum_in_half(x: Tensor, grad: Tensor, m: Tensor) -> None:
    m.copy_(0.9 * m.double() + grad)
    x.sub_((m / (m.abs().sqrt() + 1)).bfloat16())


@pytest.mark.parametrize(("kernel", "right"), [(_momentum, True), (_momentum_in_half, False)])
def test_what_a_reference_of_float64_keeps_in_single_precision_has_the_errors_of_that(
    kernel, right
):
    @opsmith.op(f"single_precision::{kernel.__name__}", mutates_args=("x", "m"))
    def momentum(
        x: Float64[Tensor, "N"], grad: Float64[Tensor, "N"], m: Float32[Tensor, "N"]
    ) -> None:
        m.copy_(0.9 * m + grad)
        x.sub_(m / (m.abs().sqrt() + 1))

    momentum.register_kernel("cpu")(kernel)
    report = checks.run(momentum, select=["reference"], isolate=False, examples=40)
    (row,) = (row for row in report.rows if row.check == "reference")
    assert (row.status == "passed") == right, row.explain()


def test_a_factor_in_single_precision_widens_no_tolerance_in_double():
    @opsmith.op("single_precision::scaled")
    def scaled(x: Float64[Tensor, "N"], by: Float32[Tensor, "N"]) -> Float64[Tensor, "N"]:
        return x * by

    scaled.register_kernel("cpu")(lambda x, by: (x.float() * by).double())
    report = checks.run(scaled, select=["reference"], isolate=False, examples=20)
    (row,) = (row for row in report.rows if row.check == "reference")
    assert row.status == "failed"


Operator = Callable[..., Tensor]


@opsmith.op("single_precision::linear")
def linear(a: Float16[Tensor, "M K"], b: Float16[Tensor, "N K"]) -> Float16[Tensor, "M N"]:
    return (a.float() @ b.float().T).to(a.dtype)


@opsmith.op("single_precision::rms_norm")
def rms_norm(x: Float16[Tensor, "N C"], w: Float16[Tensor, "C"]) -> Float16[Tensor, "N C"]:
    y = x.to(torch.float32)
    y = y * torch.rsqrt(y.square().mean(-1, keepdim=True) + 1e-5)
    return (y * w.float()).to(x.dtype)


@opsmith.op("single_precision::softmax")
def softmax(x: BFloat16[Tensor, "N C"]) -> Float32[Tensor, "N C"]:
    return torch.softmax(x, -1, dtype=torch.float32)


@opsmith.op("single_precision::totals")
def totals(x: Float16[Tensor, "N C"]) -> Float16[Tensor, "N"]:
    return x.sum(-1, dtype=torch.float32).to(x.dtype)


@opsmith.op("single_precision::totals_in_a_buffer")
def totals_in_a_buffer(x: Float16[Tensor, "N C"]) -> Float32[Tensor, "N"]:
    found = torch.zeros(x.shape[0], dtype=torch.float32)
    return found.index_add(0, torch.arange(x.shape[0]).repeat(x.shape[1]), x.float().T.flatten())


@opsmith.op("single_precision::distances")
def distances(x: Float16[Tensor, "N C"]) -> Float16[Tensor, "N"]:
    y = x.type(torch.FloatTensor)
    return torch.linalg.vector_norm(y, dim=1, dtype=torch.float32).to(x.dtype)


@opsmith.op("single_precision::product")
def product(a: Float16[Tensor, "M K"], b: Float16[Tensor, "N K"]) -> Float32[Tensor, "M N"]:
    return a.float() @ b.float().T


@opsmith.op("single_precision::unchanged")
def unchanged(x: Float32[Tensor, "N C"]) -> Float32[Tensor, "N"]:
    return x.float().sum(-1, dtype=torch.float32)


@opsmith.op("single_precision::of_integers")
def of_integers(x: Int32[Tensor, "N C"]) -> Float32[Tensor, "N"]:
    return (x.float() * torch.tensor([0.5], dtype=torch.float32)).sum(-1)


@opsmith.op("single_precision::weighted")
def weighted(x: Float16[Tensor, "N 2"]) -> Float32[Tensor, "N"]:
    return x.float() @ torch.tensor([0.5, 0.3], dtype=torch.float32)


@opsmith.op("single_precision::single_at_last")
def single_at_last(x: Float16[Tensor, "N"]) -> Float32[Tensor, "N"]:
    return (x * (torch.arange(1, x.shape[0] + 1, dtype=x.dtype) * (1 / 3) - 1)).float()


@opsmith.op("single_precision::rounded")
def rounded(x: Float32[Tensor, "N C"], w: Float32[Tensor, "C"]) -> Float32[Tensor, "N"]:
    return (x.half().float() * w.half().float()).sum(-1)


@opsmith.op("single_precision::in_eight_bits")
def in_eight_bits(x: Float16[Tensor, "N C"]) -> Float32[Tensor, "N C"]:
    return (x.float() * 16).round().clamp(-128, 127).to(torch.int8).float() / 16


@opsmith.op("single_precision::narrowed_to_single")
def narrowed_to_single(x: Float[Tensor, "N C"]) -> Float[Tensor, "N C"]:
    return x.float().to(x.dtype) * 3


@opsmith.op("single_precision::by_bits")
def by_bits(x: Float16[Tensor, "N C"]) -> Float32[Tensor, "N C"]:
    exponent = (x.float().view(torch.int32) >> 23) & 255
    return exponent.float() - 127


@opsmith.op("single_precision::by_own_bits")
def by_own_bits(x: Float32[Tensor, "N C"]) -> Float32[Tensor, "N C"]:
    return (x.view(torch.int32) & 0x7FFFFFFF).view(torch.float32) * 0.1


@opsmith.op("single_precision::too_large")
def too_large(x: Float16[Tensor, "N C"]) -> Float32[Tensor, "N C"]:
    y = x.float().exp()
    return y / y.sum(-1, keepdim=True)


@opsmith.op("single_precision::of_one_dtype")
def of_one_dtype(x: Float16[Tensor, "N C"]) -> Float32[Tensor, "N"]:
    y = x.float()
    assert y.dtype == torch.float32
    return y.sum(-1)


@opsmith.op("single_precision::largest")
def largest(x: Float16[Tensor, "N C"]) -> Int64[Tensor, "N"]:
    return (x.float() * (1 / 3)).cumsum(-1).argmax(-1)


def random(*shape: int, dtype: torch.dtype = torch.float16, seed: int = 0) -> Tensor:
    numbers = torch.randn(shape, generator=torch.Generator().manual_seed(seed))
    return numbers.to(dtype)


def _cancelling(rows: int, columns: int, dtype: torch.dtype = torch.float16) -> Tensor:
    """Return rows whose sums are small compared with their terms."""
    x = random(rows, columns // 2, dtype=dtype)
    return torch.cat([x, -x.roll(1, -1), random(rows, 2, dtype=dtype, seed=4)], -1)


def _backwards(x: Tensor) -> Tensor:
    total = torch.zeros(x.shape[0])
    for column in x.float().flip(-1).unbind(-1):
        total = total + column
    return total


def _by_exponentials(x: Tensor) -> Tensor:
    y = x.float().exp()
    return y * (1 / _backwards(y)[:, None])


def _normed(x: Tensor, w: Tensor, eps: float = 1e-5) -> Tensor:
    y = x.float()
    return (y / (_backwards(y * y)[:, None] / x.shape[1] + eps).sqrt() * w.float()).half()


@dataclass
class Example:
    """An operator, a call of it, and kernels."""

    operator: Operator
    arguments: dict[str, Tensor]
    right: list[Operator]
    wrong: list[Operator] = field(default_factory=list)


_A, _B = _cancelling(5, 64), random(7, 66, seed=1)
_X = random(4, 33)
EXAMPLES = {
    "conversion and back": Example(
        linear,
        {"a": _A, "b": _B},
        [
            lambda a, b: torch.stack([_backwards(a.float() * row.float()) for row in b], 1).half(),
            lambda a, b: a[:, :33] @ b[:, :33].T + a[:, 33:] @ b[:, 33:].T,
        ],
        [lambda a, b: (a[:, :-2].float() @ b[:, :-2].float().T).half()],
    ),
    "a norm in single precision": Example(
        rms_norm,
        {"x": _X, "w": random(33, seed=2)},
        [_normed],
        [lambda x, w: _normed(x, w, 0.1), lambda x, w: _normed(x[:, :-1], w[:-1])],
    ),
    "softmax with a dtype": Example(
        softmax,
        {"x": _X.bfloat16()},
        [_by_exponentials],
        [lambda x: x.softmax(-1).float(), lambda x: _by_exponentials(x) + 1e-6],
    ),
    "a sum with a dtype": Example(
        totals,
        {"x": _A},
        [lambda x: _backwards(x).half(), lambda x: x.sum(-1)],
        [lambda x: _backwards(x[:, :-1]).half()],
    ),
    "a buffer with a dtype": Example(
        totals_in_a_buffer,
        {"x": _A},
        [_backwards],
        [lambda x: _backwards(x).half().float(), lambda x: _backwards(x[:, :-1])],
    ),
    "a type and a norm with a dtype": Example(
        distances,
        {"x": _X},
        [lambda x: _backwards(x.float().square()).sqrt().half()],
        [lambda x: _backwards(x.float().square()[:, :-1]).sqrt().half()],
    ),
    "results in single precision": Example(
        product,
        {"a": _A, "b": _B},
        [lambda a, b: torch.stack([_backwards(a.float() * row.float()) for row in b], 1)],
        [lambda a, b: (a @ b.T).float(), lambda a, b: a[:, :-2].float() @ b[:, :-2].float().T],
    ),
    "single precision of the same": Example(
        unchanged,
        {"x": _cancelling(4, 64, torch.float32)},
        [_backwards],
        [lambda x: x.bfloat16().float().sum(-1)],
    ),
    "integers": Example(
        of_integers,
        {"x": torch.arange(12, dtype=torch.int32).view(3, 4)},
        [lambda x: x.sum(-1) / 2],
        [lambda x: x.sum(-1) / 2 + 1e-4],
    ),
    "half precision, and single precision at last": Example(
        single_at_last,
        {"x": torch.full((9,), 1.7).half()},
        # In half precision, the third number is not zero.
        [lambda x: (x * (1 / 3) * torch.arange(1, 10, dtype=x.dtype) - x).float()],
        [lambda x: (x * torch.arange(1, 10, dtype=x.dtype) * 0.331 - x).float()],
    ),
    "a narrower dtype in between": Example(
        rounded,
        {"x": _cancelling(4, 64, torch.float32), "w": random(66, dtype=torch.float32, seed=3)},
        [lambda x, w: _backwards(x.half().float() * w.half().float())],
        [lambda x, w: x @ w, lambda x, w: (x.bfloat16().float() * w.bfloat16().float()).sum(-1)],
    ),
    "integers in between": Example(
        in_eight_bits,
        {"x": _X},
        [lambda x: (x.float() * 16).round().clamp(-128, 127) * 0.0625],
        [lambda x: x.float(), lambda x: (x.float() * 16).floor().clamp(-128, 127) / 16],
    ),
    "double precision, narrowed": Example(
        narrowed_to_single,
        {"x": _X.double() / 3},
        [lambda x: x.float().double() * 3],
        [lambda x: x * 3],
    ),
    "bits": Example(
        by_bits,
        {"x": _X},
        [lambda x: (torch.frexp(x.float()).exponent - 1).float()],
        [lambda x: torch.frexp(x.float()).exponent.float()],
    ),
    "bits of an argument": Example(
        by_own_bits,
        {"x": _X.float()},
        [lambda x: x.abs() / 10],
        [lambda x: x / 10],
    ),
    "an overflow of single precision": Example(
        too_large,
        {"x": torch.tensor([[100.0, 99.0], [1.0, 2.0]]).half()},
        [lambda x: torch.softmax(x.float(), -1)],
        [lambda x: torch.softmax(x.float(), -1) * torch.tensor([[0.0], [1.0]])],
    ),
    "an assertion of the dtype": Example(
        of_one_dtype,
        {"x": _A},
        [_backwards],
        [lambda x: _backwards(x[:, :-1]), lambda x: x.sum(-1).float()],
    ),
    "choices": Example(
        largest,
        {"x": torch.tensor([[1.0, 2.0, -2.0, 2.0], [3.0, -1.0, 0.5, 0.25]]).half()},
        [lambda x: torch.tensor([1, 0]), lambda x: torch.tensor([3, 0])],
        [lambda x: torch.tensor([0, 0]), lambda x: torch.tensor([1, 3])],
    ),
}


@pytest.mark.parametrize("name", EXAMPLES)
def test_the_conversions_of_a_reference_define_what_is_right(name: str) -> None:
    example = EXAMPLES[name]
    operator, arguments = example.operator, example.arguments
    for kernel in (operator.reference, *example.right):
        assert outcome(operator, kernel(**arguments), **arguments).problem is None
    for number, kernel in enumerate(example.wrong):
        problem = outcome(operator, kernel(**arguments), **arguments).problem
        assert problem is not None, f"the wrong kernel {number} is accepted"


@opsmith.op("single_precision::plain")
def plain(a: Float[Tensor, "M K"], b: Float[Tensor, "N K"]) -> Float[Tensor, "M N"]:
    return a @ b.T


@opsmith.op("single_precision::back_and_forth")
def back_and_forth(a: Float[Tensor, "M K"], b: Float[Tensor, "N K"]) -> Float[Tensor, "M N"]:
    return (a.float() @ b.half().to(torch.float8_e4m3fn).float().T).half().to(a.dtype)


@pytest.mark.parametrize("operator", [linear, product, back_and_forth])
def test_the_terms_are_measured_as_without_the_conversions(operator: Operator) -> None:
    arguments = {"a": _A, "b": _B}
    truth, wanted = (expected_of(one, arguments) for one in (operator, plain))
    assert truth.exact
    for found, right in ((truth.spread, wanted.spread), (truth.terms, wanted.terms)):
        assert found[0] is not None and right[0] is not None
        torch.testing.assert_close(found[0], right[0], rtol=1e-5, atol=0)


def test_values_are_as_precise_as_without_the_conversions() -> None:
    arguments = {"a": _A, "b": _B}
    right = plain.reference(_A.double(), _B.double())
    for operator in (linear, product):
        assert torch.equal(expected_of(operator, arguments).values[0], right)
    x = random(4, 2)
    right = x.double() @ torch.tensor([0.5, 0.3]).double()
    assert torch.equal(expected_of(weighted, {"x": x}).values[0], right)


@pytest.mark.parametrize(("operator", "exact"), [(by_bits, True), (by_own_bits, False)])
def test_bits_are_those_of_single_precision(operator: Operator, exact: bool) -> None:
    arguments = EXAMPLES["bits" if operator is by_bits else "bits of an argument"].arguments
    truth = expected_of(operator, arguments)
    assert truth.exact == exact
    assert torch.equal(truth.values[0], operator.reference(**arguments))


@pytest.mark.parametrize("operator", [linear, product, back_and_forth])
def test_gradients_are_measured_as_without_the_conversions(operator: Operator) -> None:
    arguments = {"a": _A, "b": _B}
    truth, wanted = (expected_gradients(one, arguments) for one in (operator, plain))
    assert truth is not None and wanted is not None
    for found, right in zip(truth.spread, wanted.spread, strict=True):
        assert found is not None and right is not None
        torch.testing.assert_close(found, right, rtol=1e-5, atol=0)
