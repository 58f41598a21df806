"""float8 and unsigned integers arrive in C++ as what they are; their values are compared too."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any

import jaxtyping
import pytest
import torch
from jaxtyping import (
    AbstractDtype,
    Float,
    Float8e4m3fn,
    Float8e5m2,
    Float32,
    UInt16,
    UInt32,
    UInt64,
)
from torch import Tensor

import opsmith
from opsmith.checks.harness import call
from opsmith.checks.numerics import double_run
from opsmith.errors import ArgumentError
from opsmith.judge import definition
from opsmith.kernels.codegen import cpp_names
from opsmith.kernels.languages.triton import variants
from opsmith.operators.core.arguments import dtype_name
from opsmith.operators.core.validation import Validator
from opsmith.signature import Between, Index, Sorted, signature_of
from opsmith.signature.dtypes import ALL_DTYPES, COMPLEX, INTEGRAL, UNSIGNED
from opsmith.targets.onnx import node


def narrow(
    x: Annotated[Float8e4m3fn[Tensor, "N"], Between(-8, 8)],
    y: Float8e5m2[Tensor, "N"],
    i16: Annotated[UInt16[Tensor, "N"], Index(40_000), Sorted()],
    i32: UInt32[Tensor, "N"],
    i64: Annotated[UInt64[Tensor, "N"], Between(3)],
) -> tuple[
    Float32[Tensor, "N"], Float8e4m3fn[Tensor, "N"], UInt16[Tensor, "N"], UInt64[Tensor, "N"]
]: ...


@pytest.fixture(scope="module")
def operator(build):
    return build(narrow)


def correct() -> dict[str, Any]:
    return {
        "x": torch.tensor([1.5, -2.0]).to(torch.float8_e4m3fn),
        "y": torch.tensor([0.25, 4.0]).to(torch.float8_e5m2),
        "i16": torch.tensor([0, 39_999]).to(torch.uint16),
        "i32": torch.tensor([2, 2**31]).to(torch.uint32),
        "i64": torch.tensor([3, -2]).to(torch.uint64),
    }


@pytest.mark.slow
def test_every_dtype_arrives_and_comes_back(operator) -> None:
    sums, rounded, more, most = operator(**correct())
    expected = [1.5 + 0.25 + 0 + 2, -2.0 + 4.0 + 39_999 + 2.0**31]
    torch.testing.assert_close(sums, torch.tensor(expected))
    assert rounded.dtype == torch.float8_e4m3fn
    assert rounded[0].item() == 3.75
    assert more.tolist() == [1, 40_000]
    assert most.tolist() == [4, 2**64 - 1]
    assert (more.dtype, most.dtype) == (torch.uint16, torch.uint64)


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "float8": (
        {"x": torch.tensor([9.0, 0.0]).to(torch.float8_e4m3fn)},
        "argument 'x' has value 9.0 at index 0, expected -8 <= value <= 8.",
    ),
    "uint16": (
        {"i16": torch.tensor([0, 65_535]).to(torch.uint16)},
        "argument 'i16' has value 65535 at index 1, expected 0 <= value < 40000.",
    ),
    "order": (
        {"i16": torch.tensor([2, 1]).to(torch.uint16)},
        "argument 'i16' has value 1 at index 1 after 2 at index 0, expected sorted values.",
    ),
    "uint64": (
        {"i64": torch.tensor([-1, 2]).to(torch.uint64)},
        "argument 'i64' has value 2 at index 1, expected 3 <= value.",
    ),
    "dtype": (
        {"y": torch.tensor([0.25, 4.0]).to(torch.float8_e4m3fn)},
        "argument 'y' has dtype float8_e4m3fn, expected float8_e5m2.",
    ),
    "signed": (
        {"i32": torch.tensor([1, 2], dtype=torch.int32)},
        "argument 'i32' has dtype int32, expected uint32.",
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", WRONG)
def test_what_does_not_fit_is_said_in_the_same_words(operator, name: str) -> None:
    changed, said = WRONG[name]
    arguments = {**correct(), **changed}
    with pytest.raises(RuntimeError) as native:
        operator(**arguments)
    with pytest.raises(ArgumentError) as python:
        Validator(operator.signature)(arguments)
    assert str(native.value).splitlines()[0] == f"kernels_test::narrow: {said}"
    assert str(native.value) == str(python.value)


class EightOrSixteen(AbstractDtype):
    dtypes = ["float8_e4m3fn", "float16"]  # noqa: RUF012


def test_names_of_several_dtypes_leave_out_what_pytorch_does_not_compute_in() -> None:
    def generic(annotation: Any) -> tuple[str, ...]:
        def f(x: Any) -> Any: ...

        f.__annotations__ = {"x": annotation, "return": annotation}
        found = signature_of(f, "ns::f").generic
        return () if found is None else found.names

    assert generic(Float[Tensor, "N"]) == ("float16", "bfloat16", "float32", "float64")
    unsigned = {"uint16", "uint32", "uint64", "float8_e5m2"}
    for name in (jaxtyping.Num, jaxtyping.Integer, jaxtyping.Shaped, jaxtyping.Real):
        assert not unsigned & set(generic(name[Tensor, "N"]))
    assert generic(EightOrSixteen[Tensor, "N"]) == ("float16", "float8_e4m3fn")


ROOT = Path(opsmith.__file__).parent
HEADER = ROOT / "kernels" / "include" / "opsmith" / "detail" / "dtypes.h"
#: For each table of dtypes: its file, its entries, and the dtypes that it leaves out on purpose.
TABLES: list[tuple[str, Iterable[str], set[str]]] = [
    ("kernels/codegen/cpp_names.py", cpp_names.ELEMENT_TYPES, set()),
    (
        "kernels/include/opsmith/detail/dtypes.h",
        re.findall(r"X\(\d+, \w+, \d+, \d+, (\w+)\)", HEADER.read_text()),
        set(),
    ),
    ("kernels/languages/triton/variants.py", variants.TRITON_DTYPES, set(COMPLEX)),
    ("targets/onnx/node.py", node.ELEMENT_TYPES, set()),
    ("checks/harness/call.py", call._CODES, set()),
    (
        "checks/numerics/double_run.py",
        map(dtype_name, double_run.WIDE),
        {"bool", *INTEGRAL, "float64", "complex128"},
    ),
    ("judge/definition.py", definition._ANNOTATIONS, {*COMPLEX, *UNSIGNED}),
]


@pytest.mark.parametrize(("file", "entries", "without"), TABLES, ids=[file for file, *_ in TABLES])
def test_every_dtype_stands_in_this_table(
    file: str, entries: Iterable[str], without: set[str]
) -> None:
    missing = set(ALL_DTYPES) - set(entries) - without
    assert not missing, f"opsmith/{file} lacks {', '.join(sorted(missing))}"


@pytest.mark.parametrize(
    "file",
    [
        "targets/onnxruntime/include/opsmith/detail/onnxruntime_api.h",
        "targets/jax/include/opsmith/detail/xla.h",
    ],
)
def test_a_runtime_has_the_code_and_the_bits_of_every_dtype(file: str) -> None:
    ours = re.findall(r"X\(\d+, [\w:]+, (\d+), (\d+), (\w+)\)", HEADER.read_text())
    wanted = {(code, bits): name for code, bits, name in ours if int(code) < 60}
    assert {*ALL_DTYPES} == {*wanted.values()}
    stated = re.findall(r"\b(\d+), (\d+)(?:, 1\}|, at::k\w+\}|\);)", (ROOT / file).read_text())
    missing = {name for key, name in wanted.items() if key not in stated}
    assert not missing, f"opsmith/{file} lacks {', '.join(sorted(missing))}"


def test_sets_of_dtypes_have_the_same_bits_in_python_and_in_cpp() -> None:
    entries = re.findall(r"X\((\d+), [\w:]+, \d+, \d+, (\w+)\)", HEADER.read_text())
    assert {(name, int(position)) for position, name in entries} == {
        (name, position) for position, name in enumerate(ALL_DTYPES)
    }
