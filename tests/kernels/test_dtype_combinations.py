"""Operators with several dtype variables: one source, compiled once, with four kernels."""

from pathlib import Path
from typing import Annotated, Any

import jaxtyping
import pytest
import torch
from jaxtyping import Complex, Float, Int32, Int64
from torch import Tensor

import opsmith
from opsmith import ArgumentError, DeclarationError, Index, checks
from opsmith.kernels import kernel_source
from opsmith.kernels.codegen.render import argument_header
from opsmith.kernels.languages.kernel_mistakes import explain
from opsmith.operators.core.validation import Validator

pytestmark = pytest.mark.slow(cases=2)

SOURCE = Path(__file__).with_name("sources") / "dtype_variables.cpp"
INDICES = (torch.int32, torch.int64)
Ids: Any = opsmith.DtypeVar("Ids", Int32, Int64)


class State(jaxtyping.AbstractDtype):
    dtypes = ["float32", "float64"]  # noqa: RUF012


@opsmith.op("dtype_variables::picked", autograd="reference")
def picked(
    weight: Float[Tensor, "N C"], ids: Annotated[Ids[Tensor, "P"], Index("N")]
) -> Float[Tensor, "P C"]:
    """Rows of weight."""
    return weight[ids]


@opsmith.op("dtype_variables::picked_narrow")
def picked_narrow(
    weight: Float[Tensor, "N C"], ids: Annotated[Ids[Tensor, "P"], Index("N")]
) -> Float[Tensor, "P C"]:
    """Rows of weight, by a kernel that reads every index as 32 bits."""
    return weight[ids]


@opsmith.op("dtype_variables::decayed")
def decayed(state: State[Tensor, "N"], x: Float[Tensor, "N"]) -> State[Tensor, "N"]:
    """A state in one precision, beside activations in another."""
    return state * 0.5 + x.to(state.dtype)


@opsmith.op("dtype_variables::turned")
def turned(
    w: Complex[Tensor, "N"], x: Float[Tensor, "N"]
) -> tuple[Complex[Tensor, "N"], Float[Tensor, "N"]]:
    """Complex and real numbers of one precision."""
    return w * x, w.real + x


OPERATORS = (picked, picked_narrow, decayed, turned)
for operator in OPERATORS:
    operator.register_kernel("cpu", source=SOURCE)


@pytest.fixture(autouse=True, scope="module")
def compiled() -> None:
    picked.build()


def arguments(ids: torch.dtype, weight: torch.dtype = torch.float32) -> dict[str, Any]:
    return {
        "weight": torch.arange(8, dtype=weight).view(4, 2),
        "ids": torch.tensor([3, 0], dtype=ids),
    }


@pytest.mark.parametrize("ids", INDICES)
def test_each_variable_is_a_template_parameter_of_its_own(ids: torch.dtype) -> None:
    found = picked(**arguments(ids, torch.float64))
    assert found.dtype is torch.float64
    assert found.tolist() == [[6, 7], [0, 1]]


@pytest.mark.parametrize(
    ("operator", "given", "said"),
    [
        (
            picked,
            {**arguments(torch.int32), "ids": torch.zeros(2)},
            "argument 'ids' has dtype float32, expected one of int32, int64 (Ids).",
        ),
        (
            picked,
            {**arguments(torch.int64), "ids": torch.tensor([1, 4])},
            "argument 'ids' has value 4 at index 1, expected 0 <= value < 4 (N).",
        ),
        (
            turned,
            {"w": torch.zeros(2, dtype=torch.complex128), "x": torch.zeros(2)},
            "argument 'x' has dtype float32, expected float64: every Float and Complex tensor of "
            "a call has one precision, and 'w' fixed it.",
        ),
        (
            turned,
            {"w": torch.zeros(2), "x": torch.zeros(2)},
            "argument 'w' has dtype float32, expected one of complex64, complex128.",
        ),
    ],
)
def test_cpp_and_python_refuse_in_the_same_words(
    operator: Any, given: dict[str, Any], said: str
) -> None:
    with pytest.raises(RuntimeError) as native:
        operator(**given)
    with pytest.raises(ArgumentError) as python:
        Validator(operator.signature)(given)
    assert str(native.value).splitlines()[0] == f"{operator.name}: {said}"
    assert str(native.value) == str(python.value)


def test_a_combination_that_the_kernel_lacks_is_answered_with_those_that_it_has() -> None:
    half = decayed(torch.ones(2), torch.ones(2, dtype=torch.float16))
    assert half.tolist() == [1.5, 1.5] and half.dtype is torch.float32
    with pytest.raises(RuntimeError) as caught:
        decayed(torch.ones(2, dtype=torch.float64), torch.ones(2))
    assert str(caught.value).splitlines()[0] == (
        f"{decayed.name}: argument 'state', 'x': the cpu kernel has no float64+float32; it has "
        "float32+float16, float32+float32, float64+float64"
    )


@pytest.mark.long
def test_a_kernel_is_checked_in_its_own_combinations_alone() -> None:
    report = checks.run(decayed, select=["build", "reference"], examples=20)
    assert report.ok, report.explain()
    (row,) = (row for row in report.rows if row.check == "reference")
    assert {sample.dtype for sample in row.samples} == {
        "float32+float16",
        "float32+float32",
        "float64+float64",
    }


@pytest.mark.long
def test_a_kernel_that_reads_wide_indices_as_narrow_ones_is_found_and_its_twin_passes() -> None:
    report = checks.run(picked, select=["reference"], examples=20)
    assert report.ok, report.explain()
    (row,) = (row for row in report.rows if row.check == "reference")
    both = [f"{one}+{other}" for one in ("float32", "float64") for other in ("int32", "int64")]
    assert {sample.dtype for sample in row.samples} == set(both)
    wrong = checks.run(picked_narrow, select=["reference"], examples=20)
    (row,) = (row for row in wrong.rows if row.check == "reference")
    assert row.status == "failed"
    assert "ids: int64" in wrong.explain()


def test_a_complex_result_has_the_precision_of_the_real_argument() -> None:
    for real, complex_ in ((torch.float32, torch.complex64), (torch.float64, torch.complex128)):
        found, moved = turned(torch.tensor([1 + 2j], dtype=complex_), torch.ones(1, dtype=real))
        assert (found.dtype, moved.dtype) == (complex_, real)
        assert found.tolist() == [1 + 2j] and moved.tolist() == [2]
    assert turned.signature.generic is not None
    assert turned.signature.generic.names == ("float32", "float64")


def test_the_header_says_which_template_parameter_is_which() -> None:
    header = argument_header(picked.signature)
    assert (
        "// OpsmithFloat is the one dtype of every Float tensor: float16, bfloat16, float32, "
        "float64.\n// OpsmithIds is the one dtype of every Ids tensor: int32, int64.\n"
        "template <typename OpsmithFloat, typename OpsmithIds>" in header
    )
    assert "opsmith::Tensor<const opsmith::complex<OpsmithElement>> w;" in argument_header(
        turned.signature
    )


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (
            "float, double",
            "OPSMITH_KERNEL(dtype_variables, picked, cpu, float, double) does not say the element "
            "types of Float and Ids, the 2 dtype variables of dtype_variables::picked: write a "
            "group for each, as in OPSMITH_KERNEL(dtype_variables, picked, cpu, (float, double), "
            "(int32_t, int64_t)), or the combinations, as in opsmith::types<float, int32_t>",
        ),
        (
            "(float, double)",
            "OPSMITH_KERNEL(dtype_variables, picked, cpu, (float, double)) does not say the "
            "element types of Float and Ids",
        ),
        (
            "opsmith::types<float, int32_t>, opsmith::types<float>",
            "OPSMITH_KERNEL(dtype_variables, picked, cpu, opsmith::types<float, int32_t>, "
            "opsmith::types<float>) does not say the element types of Float and Ids",
        ),
        ("(float, double),\n    (int32_t)", ""),
        ("opsmith::types<float, int32_t>", ""),
    ],
)
def test_a_kernel_line_for_another_number_of_variables_is_explained(
    tmp_path: Path, line: str, said: str
) -> None:
    path = tmp_path / "picked.cpp"
    path.write_text(f'#include "picked.h"\nOPSMITH_KERNEL(dtype_variables, picked, cpu, {line})\n')
    found = explain(kernel_source(picked.signature, "cpu", path), "")
    assert found.startswith(said) if said else not found


@pytest.mark.parametrize(
    ("name", "dtypes", "said"),
    [
        ("Ids", (), "a dtype variable has at least two dtypes to choose from, as in "
         "DtypeVar('Ids', Int32, Int64); got none"),
        ("Ids", (Int32, "int32"), "a dtype variable has at least two dtypes to choose from, as in "
         "DtypeVar('Ids', Int32, Int64); got int32, int32"),
        ("Ids", ("int33",), "'int33' is no dtype that operators carry; write jaxtyping's classes "
         "(Int32, Float) or names of bool, uint8"),
        ("Ids", (int, Int32), "<class 'int'> is no dtype that operators carry; write jaxtyping's"),
        ("my ids", (Int32, Int64), "the name of a dtype variable is an identifier"),
    ],
)  # fmt: skip
def test_a_variable_that_cannot_be_is_refused(
    name: str, dtypes: tuple[Any, ...], said: str
) -> None:
    with pytest.raises(DeclarationError) as caught:
        opsmith.DtypeVar(name, *dtypes)
    assert str(caught.value).startswith(f"DtypeVar({name!r}): {said}")


def test_a_variable_takes_classes_names_and_dtypes_and_leaves_out_what_is_only_stored() -> None:
    assert opsmith.DtypeVar("A", Int32, "int64", torch.int16).dtypes == ("int32", "int64", "int16")
    assert opsmith.DtypeVar("B", Float).dtypes == ("bfloat16", "float16", "float32", "float64")
