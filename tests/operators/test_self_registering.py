"""Kernels with a TORCH_LIBRARY block of their own: one library, validated, counted."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import Any

import pytest
import torch
import torch_library_operators as ops
from jaxtyping import Float, Float32
from torch import Tensor
from torch_library_operators import SOURCE, mymul, mymuladd, mypick

import opsmith
from opsmith import checks
from opsmith.errors import ArgumentError, BuildError, DeclarationError
from opsmith.operators.core import registry

ALL = (mymuladd, mymul, ops.myadd_out, mypick)


@pytest.mark.slow
def test_one_source_serves_several_operators_and_is_built_once() -> None:
    libraries = {tuple(operator.build("cpu")) for operator in ALL}
    assert len(libraries) == 1
    a, b, out = torch.tensor([1.0, 2.0]), torch.tensor([3.0, 4.0]), torch.zeros(2)
    assert mymuladd(a, b, 1.0).tolist() == [4, 9]
    assert mymul(a, b).tolist() == [3, 8]
    ops.myadd_out(a, b, out)
    assert out.tolist() == [4, 6]
    picked = mypick(a, torch.tensor([1, 0, 1]), [1.0], [b], ("a", "b"), "x", 3)
    assert picked.tolist() == [2, 1, 2]
    assert all(operator.kernels["reference"].calls == 0 for operator in ALL)


@pytest.mark.slow
def test_the_operator_stays_the_one_that_was_declared() -> None:
    before = mymul._opoverload
    mymul.build()
    assert mymul._opoverload is before is torch.ops.extension_cpp.mymul.default
    assert torch.Tag.pt2_compliant_tag in before.tags
    program = torch.export.export(Multiply(), (torch.ones(2), torch.ones(2)))
    assert any(node.target is before for node in program.graph.nodes)
    calls = mymul.kernels["cpu"].calls
    compiled = torch.compile(mymul, fullgraph=True, backend="eager")
    assert compiled(torch.full((2,), 3.0), torch.full((2,), 2.0)).tolist() == [6, 6]
    assert mymul.kernels["cpu"].calls == calls + 1


class Multiply(torch.nn.Module):
    """Calls `mymul`."""

    def forward(self, a: Tensor, b: Tensor) -> Tensor:
        return mymul(a, b)


BAD: list[tuple[dict[str, Any], str]] = [
    (
        {"at": torch.tensor([0, 2])},
        "extension_cpp::mypick: argument 'at' has value 2 at index 1, expected 0 <= value < 2 (N).",
    ),
    (
        {"at": torch.tensor([[0]])},
        "extension_cpp::mypick: argument 'at' has 2 dimensions, expected 1 for Int64[",
    ),
    (
        {"x": torch.ones(2).double()},
        "extension_cpp::mypick: argument 'x' has dtype float64, expected float32.",
    ),
    (
        {"x": None},
        "extension_cpp::mypick: argument 'x' is None, expected Float32[Tensor, \"N\"].",
    ),
    (
        {"at": None},
        "extension_cpp::mypick: argument 'at' is None, expected Int64[Tensor, \"K\"].\n"
        "  bound so far: N=2",
    ),
    (
        {"names": ["a"]},
        "extension_cpp::mypick: argument 'names' has 1 elements, expected 2.",
    ),
]


@pytest.mark.slow(cases=2)
@pytest.mark.parametrize(("wrong", "message"), BAD)
def test_arguments_that_do_not_fit_never_reach_the_kernel(
    wrong: dict[str, Any], message: str
) -> None:
    mypick.build()
    right = {"x": torch.ones(2), "at": torch.tensor([0]), "scales": [1.0], "more": []}
    arguments = right | {"names": ["a", "b"]} | wrong
    before = mypick.kernels["cpu"].calls
    for call in (mypick, torch.ops.extension_cpp.mypick):
        with pytest.raises(RuntimeError) as caught:
            call(**arguments)
        assert str(caught.value).startswith(message)
    with pytest.raises(ArgumentError), torch.inference_mode():
        mypick(**arguments)
    assert mypick.kernels["cpu"].calls == before


@pytest.mark.slow
def test_its_calls_are_counted_in_every_mode() -> None:
    a = torch.ones(3)
    mymul.build()
    before = mymul.kernels["cpu"].calls
    mymul(a, a)
    torch.ops.extension_cpp.mymul(a, a)
    with torch.inference_mode():
        mymul(a, a)
    mymul(a.clone().requires_grad_(), a).sum().backward()
    assert mymul.kernels["cpu"].calls == before + 4


@pytest.mark.slow
def test_tensors_arrive_contiguous_and_what_is_written_comes_back() -> None:
    a, out = torch.arange(6.0).reshape(2, 3).T, torch.zeros(3, 4)[:, ::2]
    assert mymul(a, a).is_contiguous()
    ops.myadd_out(a, a, out)  # the kernel refuses an `out` with gaps
    assert torch.equal(out, a + a)
    with pytest.raises(RuntimeError, match="'out' is written, but its elements share memory"):
        ops.myadd_out(a[0], a[0], torch.zeros(1).expand(2))


@pytest.mark.slow
def test_what_the_source_defines_beside_is_there_and_may_be_declared_later() -> None:
    mymul.build()
    assert torch.ops.extension_cpp.left_alone(torch.ones(1)).tolist() == [2]

    @opsmith.op("extension_cpp::left_alone")
    def left_alone(x: Float[Tensor, "N"]) -> Float[Tensor, "N"]:
        return x + 1

    assert left_alone(torch.ones(1)).tolist() == [2]


@pytest.mark.slow
def test_declaring_again_takes_the_kernel_back() -> None:
    operator: Any = None
    for _ in range(2):
        operator = opsmith.op("extension_cpp::mymul", mymul.reference)
        assert operator(torch.ones(2), torch.ones(2)).tolist() == [1, 1]
    operator.register_kernel("cpu", source=SOURCE, api="torch", flags=("-O0",))
    with pytest.raises(ArgumentError, match="expected"):
        operator(torch.ones(2), torch.ones(3))
    assert operator(torch.ones(2), torch.ones(2)).tolist() == [1, 1]
    assert operator.kernels["cpu"].calls == 1
    registry.add(mymul)


FAULTY = """
#include <ATen/core/Tensor.h>
#include <torch/library.h>
static at::Tensor f(const at::Tensor& x, int64_t k) { return x.mul(k); }
TORCH_LIBRARY(%s, m) { %s }
TORCH_LIBRARY_IMPL(%s, CPU, m) { m.impl("scale", &f); }
"""


def declare(tmp_path: Path, namespace: str, block: str) -> Any:
    """An operator ``scale(x, k)`` with a source whose TORCH_LIBRARY block says `block`."""
    source = tmp_path / "scale.cpp"
    source.write_text(textwrap.dedent(FAULTY % (namespace, block, namespace)))

    def scale(x: Float32[Tensor, "N"], k: int) -> Float32[Tensor, "N"]:
        return x * k

    operator = opsmith.op(f"{namespace}::scale", scale)
    operator.register_kernel("cpu", source=source, api="torch", flags=("-O0",))
    return operator


@pytest.mark.long
def test_a_block_that_fails_is_an_exception_and_no_abort(tmp_path: Path) -> None:
    operator = declare(tmp_path, "torch_library_faulty", 'm.def("not a schema (");')
    for _ in range(2):
        with pytest.raises(BuildError, match=r"scale.cpp does not register its functions: "):
            operator(torch.ones(2), 3)


@pytest.mark.long
def test_another_schema_than_the_declarations_is_refused(tmp_path: Path) -> None:
    block = 'm.def("scale(Tensor x, float k) -> Tensor");'
    operator = declare(tmp_path, "torch_library_schema", block)
    with pytest.raises(DeclarationError) as caught:
        operator(torch.ones(2), 3)
    assert str(caught.value) == (
        "torch_library_schema::scale: the schema in the C++ source differs from the "
        "declaration's.\n"
        "  C++:         torch_library_schema::scale(Tensor x, float k) -> Tensor\n"
        "  declaration: torch_library_schema::scale(Tensor x, SymInt k) -> Tensor"
    )


@pytest.mark.long
def test_a_function_in_def_is_the_devices_kernel(tmp_path: Path) -> None:
    source = 'm.def("scale", &f);'
    operator = declare(tmp_path, "torch_library_function", source)
    operator.kernels["cpu"].source.path.write_text(
        (FAULTY % ("torch_library_function", source, "torch_library_function")).rsplit("\n", 2)[0]
    )
    assert operator(torch.ones(2), 3).tolist() == [3, 3]
    assert (operator.kernels["cpu"].calls, operator.kernels["reference"].calls) == (1, 0)


TWO = """
#include <ATen/core/Tensor.h>
#include <torch/library.h>
static at::Tensor twice(const at::Tensor& x) { return x.mul(2); }
static at::Tensor thrice(const at::Tensor& x) { return x.mul(3); }
TORCH_LIBRARY_IMPL(torch_library_two, CPU, m) {
  m.impl("twice", &twice);
  m.impl("thrice", &thrice);
}
"""


@pytest.mark.long
def test_a_disabled_kernel_stays_so_when_another_operator_loads_the_source(tmp_path: Path) -> None:
    source = tmp_path / "two.cpp"
    source.write_text(TWO)

    @opsmith.op("torch_library_two::twice")
    def twice(x: Float32[Tensor, "N"]) -> Float32[Tensor, "N"]:
        return x + x

    @opsmith.op("torch_library_two::thrice")
    def thrice(x: Float32[Tensor, "N"]) -> Float32[Tensor, "N"]:
        return x + x + x

    for operator in (twice, thrice):
        operator.register_kernel("cpu", source=source, api="torch", flags=("-O0",))
    x = torch.ones(1)

    def calls() -> tuple[int, int]:
        return twice.kernels["reference"].calls, twice.kernels["cpu"].calls

    with twice.set_kernel_enabled("cpu", enabled=False):
        assert thrice(x).item() == 3
        assert thrice.kernels["cpu"].calls == 1
        assert twice(x).item() == 2
        assert calls() == (1, 0)
    assert twice(x).item() == 2
    assert calls() == (1, 1)


OLDER = """
#include <ATen/core/Tensor.h>
#include <ATen/core/op_registration/op_registration.h>
static at::Tensor scale(at::Tensor x, int64_t k) { return x.mul(k); }
static auto registry = torch::RegisterOperators()
    .op("torch_library_older::scale", &scale)
    .op("torch_library_older::named(Tensor x, int k=2) -> Tensor", &scale)
    .op("torch_library_older::beside", [](at::Tensor x) { return x.add(1); });
static c10::RegisterOperators more("torch_library_older::more", &scale);
"""


@pytest.mark.long
def test_a_source_may_register_as_before_there_were_blocks(tmp_path: Path) -> None:
    source = tmp_path / "older.cpp"
    source.write_text(OLDER)

    @opsmith.op("torch_library_older::scale", autograd="reference")
    def scale(x: Float32[Tensor, "N"], k: int) -> Float32[Tensor, "N"]:
        return x * k

    @opsmith.op("torch_library_older::named")
    def named(x: Float32[Tensor, "N"], k: int = 2) -> Float32[Tensor, "N"]:
        return x * k

    for operator in (scale, named):
        operator.register_kernel("cpu", source=source, api="torch", flags=("-O0",))
    x = torch.ones(2, requires_grad=True)
    assert scale(x, 3).tolist() == [3, 3]
    assert torch.autograd.grad(scale(x, 3).sum(), x)[0].tolist() == [3, 3]
    assert named(x.detach()).tolist() == [2, 2]
    for operator in (scale, named):
        assert operator.kernels["cpu"].calls and not operator.kernels["reference"].calls
    with pytest.raises(ArgumentError, match="argument 'x' has dtype float64"):
        scale(x.double(), 3)
    assert torch.ops.torch_library_older.beside(torch.ones(1)).tolist() == [2]
    assert torch.ops.torch_library_older.more(torch.ones(1), 4).tolist() == [4]


@pytest.mark.long
def test_options_of_an_older_source_are_refused_by_an_exception_and_no_abort(
    tmp_path: Path,
) -> None:
    operator = declare(tmp_path, "torch_library_old", "")
    source = operator.kernels["cpu"].source.path
    source.write_text(
        "#include <ATen/core/Tensor.h>\n"
        "#include <ATen/core/op_registration/op_registration.h>\n"
        "static at::Tensor f(at::Tensor x, int64_t k) { return x.mul(k); }\n"
        "static auto registry = torch::RegisterOperators().op(torch::RegisterOperators::options()\n"
        '    .schema("torch_library_old::scale").kernel<decltype(f), &f>(c10::DispatchKey::CPU));\n'
    )
    with pytest.raises(BuildError) as caught:
        operator(torch.ones(2), 3)
    assert str(caught.value) == (
        f"torch_library_old::scale (cpu): {source} does not register its functions: opsmith does "
        f"not "
        'take torch::RegisterOperators::options(). Write torch::RegisterOperators().op("ns::name", '
        "&function), or a TORCH_LIBRARY block"
    )


MODULE = """
#include <ATen/core/Tensor.h>
#include <pybind11/stl.h>  // or <torch/extension.h>, which takes four times as long to compile
namespace py = pybind11;
static std::vector<at::Tensor> parts(const at::Tensor& x, int by) { return {x.mul(by), x.add(by)}; }
static int change(at::Tensor& x, float by, const std::optional<at::Tensor>& shift, bool twice,
                  const std::string& how, std::vector<int64_t> pads, at::TensorList more) {
  x.mul_(by);
  if (shift) x.add_(*shift);
  if (twice) x.mul_(2);
  if (how == "padded") x.add_(pads.at(0));
  for (const auto& tensor : more) x.add_(tensor);
  return 1;
}
PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {
  m.doc() = "what Python is told";
  m.attr("version") = 1;
  m.def("parts", &parts, "in two", py::arg("x"), py::arg("by") = 2);
  m.def("change", &change, py::call_guard<py::gil_scoped_release>());
  m.def("beside", [](py::object) { return 1; });
}
"""


@pytest.mark.long
def test_functions_of_a_module_of_pythons_are_kernels(tmp_path: Path) -> None:
    source = tmp_path / "module.cpp"
    source.write_text(MODULE)

    @opsmith.op("torch_module::parts", autograd="reference")
    def parts(
        x: Float32[Tensor, "N"], by: int = 2
    ) -> tuple[Float32[Tensor, "N"], Float32[Tensor, "N"]]:
        return x * by, x + by

    @opsmith.op("torch_module::change", mutates_args=("x",))
    def change(
        x: Float32[Tensor, "N"],
        by: float,
        shift: Float32[Tensor, "N"] | None,
        twice: bool,
        how: str,
        pads: list[int],
        more: list[Tensor],
    ) -> None:
        raise AssertionError("the reference")

    for operator in (parts, change):
        operator.register_kernel("cpu", source=source, api="torch", flags=("-O0",))
    x = torch.ones(2, requires_grad=True)
    assert [part.tolist() for part in parts(x, 3)] == [[3, 3], [4, 4]]
    assert torch.autograd.grad(parts(x)[0].sum(), x)[0].tolist() == [2, 2]
    y = torch.ones(2)
    assert change(y, 2.0, torch.ones(2), True, "padded", [5, 6], [torch.ones(2)] * 2) is None
    assert y.tolist() == [13, 13]
    change(y, 0.5, None, False, "", [], [])
    assert y.tolist() == [6.5, 6.5]
    for operator in (parts, change):
        assert operator.kernels["cpu"].calls and not operator.kernels["reference"].calls
    with pytest.raises(ArgumentError, match="argument 'x' has dtype float64"):
        parts(x.double())
    with pytest.raises(RuntimeError, match="does not fit into the type that the source's function"):
        parts(x, 2**40)
    report = checks.run(parts, select=["aotinductor"], isolate=False)
    assert [row.message for row in report.rows if row.check == "aotinductor"] == [
        "a package runs without Python, and the kernel's source has a PYBIND11_MODULE"
    ]


@pytest.mark.long
def test_functions_of_a_module_serve_operators_declared_later_and_fit_or_are_refused(
    tmp_path: Path,
) -> None:
    source = tmp_path / "module.cpp"
    source.write_text(
        "#include <ATen/core/Tensor.h>\n"
        "#include <pybind11/pybind11.h>\n"
        "PYBIND11_MODULE(anything, m) {\n"
        '  m.def("twice", [](at::Tensor x) { return x.mul(2); });\n'
        '  m.def("pick", [](at::Tensor x, int i) { return x.select(0, i); });\n'
        '  m.def("call", [](pybind11::object f) { return f(); });\n'
        "}\n"
    )

    def declared(name: str) -> Any:
        def reference(x: Float[Tensor, "N"]) -> Float[Tensor, "N"]:
            raise AssertionError("the reference")

        operator = opsmith.op(f"torch_module_later::{name}")(reference)
        operator.register_kernel("cpu", source=source, api="torch", flags=("-O0",))
        return operator

    for _ in range(2):  # declared again, it is as before
        assert declared("twice")(torch.ones(2)).tolist() == [2, 2]

    def refusal(name: str) -> str:
        operator = declared(name)
        with pytest.raises(BuildError) as caught:
            operator(torch.ones(2))
        start = f"torch_module_later::{name} (cpu): {source} does not register its functions: "
        assert str(caught.value).startswith(start)
        return str(caught.value).removeprefix(start)

    assert refusal("pick") == "its function takes 2 arguments, and the declaration has 1"
    assert refusal("call") == "its function takes an argument of a type that no operator has"
    assert refusal("triple") == (
        "its PYBIND11_MODULE has no function 'triple'. It has call, pick, twice: a function "
        "becomes the kernel of the operator that has its name"
    )


@pytest.mark.long
def test_a_module_may_stand_beside_a_block(tmp_path: Path) -> None:
    source = tmp_path / "both.cpp"
    source.write_text(
        "#include <pybind11/pybind11.h>\n#include <torch/library.h>\n"
        "static at::Tensor twice(const at::Tensor& x) { return x.mul(2); }\n"
        "static at::Tensor wrong(const at::Tensor& x) { return x.mul(9); }\n"
        'TORCH_LIBRARY(torch_both, m) { m.def("twice(Tensor x) -> Tensor"); }\n'
        'TORCH_LIBRARY_IMPL(torch_both, CPU, m) { m.impl("twice", &twice); }\n'
        "PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {\n"
        '  m.def("twice", &wrong);\n  m.def("thrice", [](at::Tensor x) { return x.mul(3); });\n}\n'
    )

    def declared(name: str, by: int) -> Any:
        def reference(x: Float[Tensor, "N"]) -> Float[Tensor, "N"]:
            return x * by

        operator = opsmith.op(f"torch_both::{name}")(reference)
        operator.register_kernel("cpu", source=source, api="torch", flags=("-O0",))
        return operator

    twice, thrice = declared("twice", 2), declared("thrice", 3)
    assert twice(torch.ones(2)).tolist() == [2, 2]
    assert thrice(torch.ones(2)).tolist() == [3, 3], "no block registers it"
    report = checks.run(twice, select=["aotinductor"], isolate=False)
    assert [row.message for row in report.rows if row.check == "aotinductor"] == [
        "a package runs without Python, and the kernel's source has a PYBIND11_MODULE"
    ]


STABLE = """
#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/ops.h>
#include <torch/csrc/stable/tensor.h>
using torch::stable::Tensor;
Tensor twice(const Tensor& x) {
  Tensor result = torch::stable::empty_like(x);
  const float* from = static_cast<const float*>(x.data_ptr());
  float* to = static_cast<float*>(result.data_ptr());
  for (int64_t i = 0; i < x.numel(); ++i) to[i] = 2 * from[i];
  return result;
}
STABLE_TORCH_LIBRARY(torch_library_stable, m) {
  m.def("twice(Tensor x) -> Tensor");
  m.def("undeclared(Tensor x) -> Tensor");
}
STABLE_TORCH_LIBRARY_FRAGMENT(torch_library_stable, m) { m.def("further(Tensor x) -> Tensor"); }
STABLE_TORCH_LIBRARY_IMPL(torch_library_stable, CPU, m) { m.impl("twice", TORCH_BOX(&twice)); }
"""


@pytest.mark.long
def test_a_block_of_the_stable_abi_may_define_what_is_declared(tmp_path: Path) -> None:
    source = tmp_path / "twice.cpp"
    source.write_text(STABLE)

    @opsmith.op("torch_library_stable::twice")
    def twice(x: Float32[Tensor, "N"]) -> Float32[Tensor, "N"]:
        return x * 2

    twice.register_kernel("cpu", source=source, api="torch", flags=("-O0",))
    assert twice(torch.ones(2)).tolist() == [2, 2]
    assert (twice.kernels["cpu"].calls, twice.kernels["reference"].calls) == (1, 0)
    assert torch.ops.torch_library_stable.undeclared.default
    assert torch.ops.torch_library_stable.further.default
