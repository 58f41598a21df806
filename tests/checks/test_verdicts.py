"""What is no fault passes, and is said; what is one is said in full."""

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from jaxtyping import Float, Float8e4m3fn, Float8e5m2, Float32
from torch import Tensor

import opsmith
from opsmith import checks

pytestmark = pytest.mark.slow(cases=2)


def row(operator, check, **options):
    *_, found = checks.run(operator, select=[check], isolate=False, **options).rows
    return found


@opsmith.op("verdicts::middle")
def middle(x: Float[Tensor, "N C"]) -> Float[Tensor, "N"]:
    # As some of PyTorch's own operators were: right for contiguous memory only.
    flat = x.as_strided((x.numel(),), (1,), x.storage_offset()) if 0 not in x.stride() else x
    return flat.reshape(x.shape).sort(1).values[:, : x.shape[1] // 2 + 1].sum(1)


@middle.register_kernel("cpu")
def _(x: Tensor) -> Tensor:
    return x.contiguous().sort(1).values[:, : x.shape[1] // 2 + 1].sum(1)


def test_a_reference_that_depends_on_the_layout_is_said_and_the_kernel_not_blamed():
    found = row(middle, "layouts")
    assert found.status == "passed", found.explain()
    note, undrawn = found.notes
    assert undrawn == "no case of permuted, channels last: no argument has so many dimensions"
    assert note.startswith(
        "the reference disagrees with itself between memory layouts. Called with x: float32 ("
    )
    assert "transposed" in note
    assert note.endswith("What it gives for contiguous copies is right here")


@opsmith.op("verdicts::by_threads", autograd="reference")
def by_threads(x: Float[Tensor, "N"]) -> Float[Tensor, "N"]:
    # As a matrix product may: its last bits depend on how the work is split.
    return x * (1 + torch.finfo(x.dtype).eps * torch.get_num_threads())


def test_the_bits_of_a_reference_may_depend_on_the_threads_and_the_row_says_so():
    found = row(by_threads, "determinism")
    assert found.status == "passed", found.explain()
    result, gradient = found.notes
    assert result.startswith("1 thread and 2 threads gave different bits: the result[")
    assert result.endswith("both are within the tolerance, as PyTorch's own operators do")
    assert gradient.startswith("gradients: 1 thread and 2 threads gave different bits: ")


@opsmith.op("verdicts::wide_only")
def wide_only(x: Float[Tensor, "N"]) -> Float[Tensor, "N"]:
    return x * 2


@wide_only.register_kernel("cpu")
def _(x: Tensor) -> Tensor:
    return torch.cat([x[:256] * 2, x[256:]])


def test_a_tail_that_only_large_sizes_have_is_compared_with_what_is_right():
    found = row(wide_only, "determinism")
    assert found.status == "failed"
    assert "expected" in found.message
    assert "x: float32 (257,)" in found.case


@opsmith.op("verdicts::ignores_strides")
def ignores_strides(x: Float[Tensor, "N"]) -> Float[Tensor, "N"]:
    return x * 2


@ignores_strides.register_kernel("cpu")
def _(x: Tensor) -> Tensor:
    return x.as_strided(x.shape, (1,), 0) * 2


def test_a_vector_is_not_called_transposed():
    found = row(ignores_strides, "layouts")
    assert found.status == "failed"
    assert "sliced" in found.case
    assert "transposed" not in found.case


@opsmith.op("verdicts::hinge")
def hinge(x: Float[Tensor, "N"]) -> Float[Tensor, "N"]:
    return x.relu()


def _save(ctx: Any, inputs: Any, output: Any) -> None:
    ctx.save_for_backward(*inputs)


@hinge.register_cases(only=True)
def _(dtype: torch.dtype, seed: int) -> Iterator[dict[str, Any]]:
    yield {"x": torch.tensor([0.0, 1.0, torch.inf, torch.nan], dtype=dtype)}


@pytest.mark.parametrize("slope", [0.0, 0.5, 1.0])
def test_at_a_kink_any_slope_between_the_two_sides_is_right(slope):
    hinge.register_autograd(
        lambda ctx, grad: (
            grad * torch.heaviside(ctx.saved_tensors[0], torch.tensor(slope).to(grad))
        ),
        setup_context=_save,
    )
    assert row(hinge, "gradient").status == "passed"
    found = row(hinge, "gradcheck")
    assert found.status == "passed", found.explain()
    assert found.notes == ("no finite differences at every case: a kink, a bound, NaN or infinity",)


@pytest.mark.parametrize("slope", [-0.1, 1.1])
def test_at_a_kink_a_slope_outside_its_two_sides_is_wrong(slope):
    hinge.register_autograd(
        lambda ctx, grad: (
            grad * torch.heaviside(ctx.saved_tensors[0], torch.tensor(slope).to(grad))
        ),
        setup_context=_save,
    )
    found = row(hinge, "gradient")
    assert found.status == "failed"
    assert "the gradient of 'x'[0] is " in found.message


@opsmith.op("verdicts::beside_single")
def beside_single(
    x: Float[Tensor, "N"], scale: Float32[Tensor, "N"]
) -> tuple[Float[Tensor, "N"], Float32[Tensor, "N"]]:
    # Opaque to autograd, so that finite differences are all there is.
    return (
        torch.from_numpy((x * scale).detach().double().numpy()).to(x.dtype),
        torch.from_numpy(scale.detach().numpy() * 2),
    )


@pytest.mark.parametrize("factor", [1, 2])
def test_finite_differences_do_not_step_in_single_precision(factor):
    beside_single.register_autograd(
        lambda ctx, one, two: (
            factor * one * ctx.saved_tensors[1],
            (one * ctx.saved_tensors[0]).float() + 2 * two,
        ),
        setup_context=_save,
    )
    assert row(beside_single, "gradient").status == "not applicable"
    found = row(beside_single, "gradcheck")
    assert found.status == ("passed" if factor == 1 else "failed"), found.explain()
    assert ("gradcheck" in found.message) == (factor == 2)


@opsmith.op("verdicts::loses_gradient", autograd="reference")
def loses_gradient(x: Float[Tensor, "N"]) -> Float[Tensor, "N"]:
    return x * 2


@loses_gradient.register_autograd
def broken_backward(ctx: Any, grad: Tensor) -> Tensor:
    return grad.new_full([int(size) for size in grad.shape], 2.0) * grad.numpy().sum()


def test_a_fault_that_only_gradients_show_is_about_the_backward():
    found = row(loses_gradient, "opcheck")
    assert found.status == "failed"
    assert found.message.startswith("only where gradients are recorded: ")
    line = broken_backward.__code__.co_firstlineno
    assert found.blame == f"backward: {__file__}:{line}"
    assert f"  backward: {__file__}:{line}" in found.explain()


@opsmith.op("verdicts::counted", data_dependent=())
def counted(x: Float[Tensor, "N"], count: int) -> list[Tensor]:
    return [x * 2] * 0 if count <= 0 else [x * 2]


@counted.register_fake
def _(x: Tensor, count: int) -> list[Tensor]:
    return [] if count <= 0 else [torch.empty_like(x)]


@counted.register_cases(only=True)
def _(dtype: torch.dtype, seed: int) -> Iterator[dict[str, Any]]:
    for size in (2, 3):
        yield {"x": torch.ones(size, dtype=dtype), "count": 0}


@pytest.mark.parametrize("check", ["compile", "export"])
def test_a_call_that_gives_no_tensor_need_not_be_in_the_graph(check):
    found = row(counted, check)
    assert found.status == "passed", found.explain()


@opsmith.op("verdicts::refuses_some")
def refuses_some(x: Float[Tensor, "N"], y: Float[Tensor, "M"]) -> Float[Tensor, "N"]:
    if x.shape[0] <= y.shape[0] + 1:
        raise ValueError("x is too short")
    return x * 2


@refuses_some.register_kernel("cpu")
def _(x: Tensor, y: Tensor) -> Tensor:
    return refuses_some.reference(x, y)


@pytest.mark.parametrize("seed", range(3))
def test_what_the_reference_refuses_is_not_exported(seed):
    found = row(refuses_some, "export", seed=seed)
    assert found.status == "passed", found.explain()


WITHOUT_COMPILERS = [
    one.name
    for one in checks.all_checks()
    if one.order < 200 and not one.flag and one.name not in ("opcheck", "compile", "export")
]


@pytest.mark.long
def test_what_the_reference_refuses_is_no_failure_of_any_row():
    settings = {"examples": 20, "seconds": 600.0}  # a busy machine has as many cases
    report = checks.run(refuses_some, select=WITHOUT_COMPILERS, isolate=False, **settings)
    assert report.ok, report.explain()
    assert {"reference", "statefulness", "determinism"} <= {
        found.check for found in report.rows if found.status == "passed"
    }


@opsmith.op("verdicts::to_eight_bits", autograd="reference")
def to_eight_bits(x: Float8e4m3fn[Tensor, "N"], y: Float[Tensor, "N"]) -> Float8e5m2[Tensor, "N"]:
    return (x.to(y.dtype) * y).detach().to(torch.float8_e5m2)


def test_what_opcheck_cannot_do_in_float8_is_said():
    found = row(to_eight_bits, "opcheck")
    assert found.status == "passed", found.explain()
    assert found.notes == (
        "without test_schema, which compares arguments before and after: PyTorch cannot do that "
        "in float8",
        "without test_aot_dispatch_dynamic, which sums the results: PyTorch cannot do that in "
        "float8",
    )
    assert not row(wide_only, "opcheck").notes


@opsmith.op("verdicts::passes_nan_on", autograd="reference")
def passes_nan_on(x: Float[Tensor, "N"]) -> Float[Tensor, "N"]:
    return x * 2


@passes_nan_on.register_cases(only=True)
def _(dtype: torch.dtype, seed: int) -> Iterator[dict[str, Any]]:
    for values in ([1.0, float("nan")], [float("inf"), 1.0, 2.0], [1.0, 2.0, 3.0, 4.0]):
        yield {"x": torch.tensor(values, dtype=dtype)}


@pytest.mark.parametrize("check", ["opcheck", "compile", "export"])
def test_a_right_operator_whose_registered_cases_have_nan_passes(check):
    found = row(passes_nan_on, check)
    assert found.status == "passed", found.explain()
    left_out = "not with NaN or infinity: opcheck takes NaN for different from NaN"
    assert (left_out in found.notes) is (check == "opcheck")
