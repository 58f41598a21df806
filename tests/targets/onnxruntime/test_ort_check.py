"""The rows that `opsmith check` has for ONNX Runtime."""

from __future__ import annotations

import sys

import ort_operators as ops
import pytest
import torch
from jaxtyping import Complex64, Float, Float32
from torch import Tensor

import opsmith
from opsmith import checks
from opsmith.checks.exports.wrapper_modules import PureCall
from opsmith.errors import OpsmithError

BY_BOTH = ["onnx-standard", "onnx-library", "onnx-inline"]
SELECT = ["onnxruntime", *BY_BOTH, *(f"{name}-torchscript" for name in BY_BOTH)]
WITHOUT_LIBRARY = [name for name in SELECT if "inline" in name or "standard" in name]


def run(*operators, select=SELECT, examples=12):
    report = checks.run(list(operators), select=select, isolate=False, examples=examples)
    return {(row.operator, row.check): row for row in report.rows}


@pytest.fixture(scope="module")
def rows():
    return run(ops.python_only, ops.scaled, ops.opaque, examples=4)


@pytest.mark.long
def test_every_form_by_every_exporter():
    rows = run(ops.accumulate)
    for name in SELECT:
        row = rows["ort_test::accumulate", name]
        if "standard" in name:
            assert (row.status, row.message) == ("not applicable", "register_onnx was not called")
        else:
            assert (row.status, row.message) == ("passed", "") and row.cases


@pytest.mark.long
def test_elements_of_lists_fix_what_comes_out():
    rows = run(ops.weighted_sum, select=["onnxruntime", "onnx-library"])
    assert {row.status for row in rows.values()} == {"passed"}, rows


@pytest.mark.slow
def test_a_python_kernel_has_no_library_but_a_reference_to_inline(rows):
    found = {name: rows["ort_test::python_only", name] for name in SELECT}
    for name in SELECT:
        wanted = "passed" if "inline" in name else "not applicable"
        assert (name, found[name].status) == (name, wanted)
    assert found["onnxruntime"].message == "the kernel is Python"


def test_a_kernel_that_does_not_run_in_a_passing_row_is_said_not_to():
    @opsmith.op("ort_test::halved")
    def halved(x: Float[Tensor, "N"]) -> Float[Tensor, "N"]:
        return x / 2

    halved.register_kernel("cpu", lambda x: x * 0.5)
    row = run(halved, select=["onnx-inline"])["ort_test::halved", "onnx-inline"]
    assert (row.kernel, row.status) == ("cpu", "passed")
    assert "the cpu kernel does not run there, as it is a Python function" in row.notes


@pytest.mark.slow
@pytest.mark.parametrize("name", WITHOUT_LIBRARY)
def test_a_registered_translation(rows, name):
    assert rows["ort_test::scaled", name].status == "passed"


@pytest.mark.slow
def test_a_reference_that_cannot_be_traced_is_said(rows):
    for name in ("onnx-inline", "onnx-inline-torchscript"):
        row = rows["ort_test::opaque", name]
        assert row.status == "not applicable"
        assert "its reference cannot be taken apart into PyTorch's operators" in row.message


@pytest.mark.slow
def test_what_onnx_runtime_itself_refuses_of_no_elements_is_not_the_reference_s_fault(tmp_path):
    @opsmith.op("ort_test::projected")
    def projected(
        x: Float[Tensor, "N K P"], w: Float[Tensor, "M K"], twice: bool
    ) -> Float[Tensor, "N M P"]:
        return (w.unsqueeze(0) @ x.unsqueeze(1)).squeeze(1) * (2 if twice else 1)

    @projected.register_cases(only=True)
    def cases(dtype, seed):
        # ONNX Runtime broadcasts no product of matrices to a size of 0.
        for size, twice in ((0, True), (2, False)):
            x, w = torch.randn(size, 3, 4, dtype=dtype), torch.randn(5, 3, dtype=dtype)
            yield {"x": x, "w": w, "twice": twice}

    names = ["onnx-inline", "onnx-inline-torchscript"]
    rows = run(projected, select=names)
    assert {row.status for row in rows.values()} == {"passed"}, rows
    arguments = next(iter(cases(torch.float32, 0)))
    opsmith.export(
        PureCall(projected, list(arguments)).eval(),
        tuple(arguments.values()),
        target="onnxruntime",
        out=tmp_path / "model",
        form={projected.name: "inline"},
        verify=False,
        say=None,
    )
    with pytest.raises(OpsmithError, match=r"while running MatMul node[\s\S]*cannot broadcast"):
        opsmith.load(tmp_path / "model")(*arguments.values())


def test_a_gate_is_as_accurate_as_onnx_runtime_computes_it():
    @opsmith.op("ort_test::gated")
    def gated(x: Float32[Tensor, "N"]) -> Float32[Tensor, "N"]:
        return torch.tanh(x) * torch.sigmoid(x - 9)

    @gated.register_cases(only=True)
    def cases(dtype, seed):
        for size in (400, 200):
            yield {"x": torch.linspace(-9, 9, size)}

    rows = run(gated, select=["onnx-inline", "onnx-inline-torchscript"])
    assert {row.status for row in rows.values()} == {"passed"}, rows

    @gated.register_kernel("cpu")  # of kernels as much is wrong
    def kernel(x):
        return torch.tanh(x) * (torch.sigmoid(x - 9) + 1e-7)

    rows = run(gated, select=["reference"])
    assert rows["ort_test::gated", "reference"].code == "OPS-VALUE-WRONG"


@pytest.mark.slow(cases=2)
@pytest.mark.parametrize("scaled", [False, True], ids=["right", "scale left out"])
@pytest.mark.usefixtures("brief_shrinking")
def test_a_node_that_subtracts_one_is_right_and_hides_no_wrong_translation(scaled):
    @opsmith.op("ort_check::elu")
    def elu(x: Float[Tensor, "N"], scale: float = 1.0) -> Float[Tensor, "N"]:
        return torch.where(x > 0, x, torch.expm1(x.clamp(max=0))) * (scale if scaled else 1)

    elu.register_onnx("Elu", opset=6)
    (row,) = run(elu, select=["onnx-standard"]).values()
    assert row.status == ("failed" if scaled else "passed"), row.explain()
    assert not scaled or row.error > 999


@pytest.mark.long
@pytest.mark.usefixtures("brief_shrinking")
def test_a_wrong_translation_fails():
    @opsmith.op("ort_test::halved")
    def halved(x: Float[Tensor, "*n"]) -> Float[Tensor, "*n"]:
        return torch.where(x < 0, x * 0.5, x)

    halved.register_onnx("LeakyRelu", opset=16, attributes={"alpha": 0.25})
    rows = run(halved, select=WITHOUT_LIBRARY)
    for name in WITHOUT_LIBRARY:
        row = rows["ort_test::halved", name]
        if "inline" in name:
            assert row.status == "passed"
        else:
            assert row.status == "failed"
            assert "the exported model, run with x (" in row.message
            assert "elements are wrong" in row.message or "expected" in row.message


@pytest.mark.long
@pytest.mark.usefixtures("brief_shrinking")
def test_a_translation_that_makes_no_valid_node_fails():
    @opsmith.op("ort_test::misnamed")
    def misnamed(x: Float[Tensor, "*n"]) -> Float[Tensor, "*n"]:
        return x.relu()

    misnamed.register_onnx("Rellu", opset=16)
    rows = run(misnamed, select=["onnx-standard", "onnx-standard-torchscript"])
    assert {row.status for row in rows.values()} == {"failed"}
    assert all("Rellu" in row.message for row in rows.values())


@pytest.mark.slow
def test_a_translation_whose_attributes_follow_from_sizes():
    @opsmith.op("ort_test::leaky_by_size")
    def leaky_by_size(x: Float[Tensor, "N C"]) -> Float[Tensor, "N C"]:
        return torch.where(x < 0, x / x.shape[1], x)

    @leaky_by_size.register_onnx(opset=16)
    def _onnx(op, x):
        return op.LeakyRelu(x, alpha=1 / op.size(x, 1))

    for row in run(leaky_by_size, select=["onnx-standard", "onnx-standard-torchscript"]).values():
        assert row.status == "passed"
        said = "exported fixed sizes: ort_test::leaky_by_size: its ONNX form has an attribute that"
        assert said in row.notes[0]


@pytest.mark.slow
def test_a_translation_of_a_later_opset_than_an_exporter_has():
    @opsmith.op("ort_test::late")
    def late(x: Float[Tensor, "*n"]) -> Float[Tensor, "*n"]:
        return x.relu()

    late.register_onnx("Relu", opset=22)
    rows = run(late, select=["onnx-standard", "onnx-standard-torchscript"])
    assert rows["ort_test::late", "onnx-standard"].status == "passed"
    row = rows["ort_test::late", "onnx-standard-torchscript"]
    assert row.message == "its standard form needs opset 22, and the exporter writes up to 20"


WRONG = """
#include <opsmith/kernel.h>
#include "tripled.h"

template <typename T>
void tripled(const opsmith::Context&, const ort_test::tripled_args<T>& a) {
  for (int64_t i = 0; i < a.N; ++i) a.out[i] = a.x[i] * (i == 0 ? T(3.01) : T(3));
}
OPSMITH_KERNEL(ort_test, tripled, cpu, float)
"""


@pytest.mark.slow
@pytest.mark.usefixtures("no_shrinking")
def test_a_kernel_that_differs_from_the_reference_fails(tmp_path):
    @opsmith.op("ort_test::tripled")
    def tripled(x: Float[Tensor, "N"]) -> Float[Tensor, "N"]:
        return x * 3

    (tmp_path / "tripled.cpp").write_text(WRONG)
    tripled.register_kernel("cpu", source=tmp_path / "tripled.cpp", flags=ops.FLAGS)
    select = ["onnxruntime", "onnx-library", "onnx-library-torchscript"]
    for name in select:
        # Of several, only the first is run, since it tells the cause.
        row = run(tripled, select=[name], examples=4)["ort_test::tripled", name]
        assert row.status == "failed", row
        assert "the result[0] is" in row.message


def test_what_is_missing_is_said_with_the_way_to_get_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    for row in run(ops.scaled, select=WITHOUT_LIBRARY).values():
        assert row.status == "not applicable"
        missing = 'onnxruntime is not installed. Get it: pip install "opsmith[onnx]"'
        assert row.message == missing


def test_an_operator_of_complex_numbers_alone_does_not_apply() -> None:
    @opsmith.op("ort_test::turned")
    def turned(x: Complex64[Tensor, "N"]) -> Complex64[Tensor, "N"]:
        return x * 1j

    (row,) = checks.run(turned, select=["onnx-inline"], isolate=False).rows
    assert (row.status, row.message) == (
        "not applicable",
        "ONNX Runtime has no complex64",
    )
