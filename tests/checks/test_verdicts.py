"""What is no fault passes, and is said; what is one is said in full."""

import torch
from jaxtyping import Float
from torch import Tensor

import opsmith
from opsmith import checks


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
    (note,) = found.notes
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
