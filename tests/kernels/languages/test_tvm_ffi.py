"""Functions of tvm-ffi modules as kernels: one module, compiled by tvm-ffi itself."""

from __future__ import annotations

import functools
import pickle
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import torch
import tvm_ffi.cpp
from jaxtyping import Float32
from torch import Tensor

import opsmith
from opsmith import checks, targets
from opsmith.errors import DeclarationError, MissingDependencyError, OpsmithError
from opsmith.kernels import Recipe
from opsmith.kernels.languages import tvm_ffi as language
from opsmith.kernels.toolchain.audit import dynamic_symbols
from opsmith.targets.aotinductor.runtime import build_runner
from opsmith.wheels import building
from opsmith.wheels.platforms import find_platform

pytestmark = pytest.mark.slow

SOURCE = Path(__file__).parents[1] / "sources" / "tvm_ffi_module.cpp"
FUNCTIONS = "multiply_add multiply_add_backward beyond column scaled positive".split()


@functools.cache
def module() -> str:
    """The path of the module."""
    source = SOURCE.read_text()
    return tvm_ffi.cpp.build_inline("opsmith_tests", cpp_sources=source, functions=FUNCTIONS)


@functools.cache
def multiply_add() -> Any:
    """An operator of two functions of the module: forward and backward."""

    @opsmith.op("tvm_modules::multiply_add", parallel_dims=("N",))
    def multiply_add(x: Float32[Tensor, "N"], y: Float32[Tensor, "N"]) -> Float32[Tensor, "N"]:
        return x * y + x

    @opsmith.op("tvm_modules::multiply_add_backward", parallel_dims=("N",))
    def backward(
        grad: Float32[Tensor, "N"], x: Float32[Tensor, "N"], y: Float32[Tensor, "N"]
    ) -> tuple[Float32[Tensor, "N"], Float32[Tensor, "N"]]:
        return grad * (y + 1), grad * x

    multiply_add.register_kernel("cpu", tvm_ffi=module())
    backward.register_kernel("cpu", tvm_ffi=module(), function="multiply_add_backward")
    multiply_add.register_backward(backward, grads={"x": 0, "y": 1})
    return multiply_add


@functools.cache
def scaled() -> Any:
    """An operator that takes an argument of each kind, and whose function returns its results."""

    @opsmith.op("tvm_modules::scaled")
    def scaled(
        x: Float32[Tensor, "N"],
        times: int,
        plus: float = 0.5,
        negate: bool = False,
        mode: str = "",
        value: float | None = None,
        bias: Float32[Tensor, "N"] | None = None,
    ) -> tuple[Float32[Tensor, "N"], Float32[Tensor, "N"]]:
        rest = torch.full_like(x, 7 if value is None else value)
        return (-x if negate else x) * times + plus, rest if bias is None else rest + bias

    args = ("x", "times", "plus", "negate", "mode", "value", "bias")
    scaled.register_kernel("cpu", tvm_ffi=Path(module()), args=args)
    return scaled


def test_a_function_and_its_backward_are_an_operator_under_every_transform() -> None:
    operator = multiply_add()
    x, y = torch.randn(2, 5, requires_grad=True), torch.randn(2, 5, requires_grad=True)
    grads = torch.autograd.grad((x * y + x).sum(), (x, y))

    def check(function: Any) -> None:
        torch.testing.assert_close(function(x[0], y[0]), (x * y + x)[0])
        found = torch.autograd.grad(function(x[0], y[0]).sum(), (x, y))
        assert all(torch.equal(one[0], other[0]) for one, other in zip(found, grads, strict=True))

    check(operator)
    check(torch.compile(lambda x, y: operator(x, y), fullgraph=True))
    torch.testing.assert_close(torch.vmap(operator)(x, y), x * y + x)
    # Pass columns, which reach the function as contiguous copies, as in any kernel.
    torch.testing.assert_close(operator(x.detach()[:, 0], y.detach()[:, 0]), (x * y + x)[:, 0])
    assert operator.kernels["cpu"].calls >= 3
    assert operator.declared_backward.backward.kernels["cpu"].calls >= 2


def test_an_exported_program_calls_it() -> None:
    class Model(torch.nn.Module):
        def forward(self, x: Tensor, y: Tensor) -> Tensor:
            result: Tensor = multiply_add()(x, y)
            return result.relu()

    x, y = torch.randn(4), torch.randn(4)
    program = torch.export.export(Model(), (x, y))
    calls = multiply_add().kernels["cpu"].calls
    torch.testing.assert_close(program.module()(x, y), (x * y + x).relu())
    assert multiply_add().kernels["cpu"].calls == calls + 1


def test_arguments_of_each_kind_arrive_and_returned_tensors_are_results() -> None:
    operator, x = scaled(), torch.randn(3)
    for given in (
        {},
        {"plus": 1.5, "negate": True, "mode": "short"},
        {"mode": "longer than what fits into a value", "value": -2.5, "bias": torch.randn(3)},
    ):
        torch.testing.assert_close(operator(x, 3, **given), operator.reference(x, 3, **given))


def test_args_name_what_the_function_takes_in_its_order() -> None:
    @opsmith.op("tvm_modules::column")
    def column(x: Float32[Tensor, "N C"], at: int) -> Float32[Tensor, "N"]:
        return x[:, at]

    column.register_kernel("cpu", tvm_ffi=module(), args=("out", "x", "C", "at"))
    x = torch.randn(4, 3)
    torch.testing.assert_close(column(x, 2), x[:, 2])


def test_a_function_may_decide_how_large_its_result_is() -> None:
    @opsmith.op("tvm_modules::positive", data_dependent=("P",))
    def positive(x: Float32[Tensor, "N"]) -> Float32[Tensor, "P"]:
        return x[x > 0]

    positive.register_kernel("cpu", tvm_ffi=module())
    x = torch.randn(20)
    torch.testing.assert_close(positive(x), x[x > 0])
    torch.testing.assert_close(positive(-x.abs()), x[:0])


def test_what_a_function_raises_is_the_operators_error_of_its_kind() -> None:
    mode = "a mode that nobody knows"
    with pytest.raises(ValueError, match="mode: ") as caught:
        scaled()(torch.ones(2), 1, mode=mode)
    assert isinstance(caught.value, OpsmithError)
    assert str(caught.value) == (
        "tvm_modules::scaled: tvm-ffi function 'scaled' raised ValueError: mode: a mode that "
        "nobody knows"
    )
    assert type(pickle.loads(pickle.dumps(caught.value))) is type(caught.value)
    # Past the declaration's Python, PyTorch's stable ABI passes the words alone.
    with pytest.raises(RuntimeError) as plain:
        torch.ops.tvm_modules.scaled(torch.ones(2), 1, mode=mode)
    assert type(plain.value) is RuntimeError
    assert str(plain.value) == str(caught.value)


def declared(name: str, **options: Any) -> Any:
    """An operator whose kernel is a function that it does not fit, maybe."""

    def reference(x: Float32[Tensor, "N"], sizes: tuple[int, int] = (1, 1)) -> Any: ...

    reference.__annotations__["return"] = Float32[Tensor, "N"]
    reference.__name__ = name
    operator = opsmith.op(f"tvm_modules::{name}")(reference)
    operator.register_kernel("cpu", **{"tvm_ffi": module(), "args": ("x", "out"), **options})
    return operator


def test_a_function_that_takes_or_returns_something_else_says_so() -> None:
    with pytest.raises(TypeError) as caught:
        declared("more", function="multiply_add")(torch.ones(2))
    assert str(caught.value) == (
        "tvm_modules::more: tvm-ffi function 'multiply_add' raised TypeError: Mismatched number "
        "of arguments when calling: `multiply_add(0: DLTensor*, 1: DLTensor*, 2: DLTensor*) -> "
        "void`. Expected 3 but got 2 arguments"
    )
    with pytest.raises(RuntimeError) as caught:
        declared("other", function="positive", args=("x",))(-torch.ones(2))
    assert str(caught.value) == (
        "tvm_modules::other: result 0 was returned as float32(0,); expected float32(2,)"
    )


def test_what_cannot_be_a_kernel_is_refused_when_it_is_registered() -> None:
    def refused(**options: Any) -> str:
        with pytest.raises(DeclarationError) as caught:
            declared("refused", **options)
        return str(caught.value)

    there = ", ".join(sorted(FUNCTIONS))
    assert refused(function="multiply") == (
        f"tvm_modules::refused (cpu): {module()} has no tvm-ffi function 'multiply'; there are "
        f"{there}"
    )
    assert "has no tvm-ffi function 'refused'" in refused()
    assert refused(function="beyond", args=None) == (
        "tvm_modules::refused (cpu): tvm-ffi function 'beyond' cannot be passed 'sizes'; args "
        "takes x, out, N. Declare the items of a list as parameters"
    )
    assert refused(source="x.cpp") == (
        "tvm_modules::refused: register_kernel(tvm_ffi=…) takes function=, the name of its "
        "function, args= and strided="
    )
    with pytest.raises(DeclarationError, match=r"\(cuda\): a result that a function returns is"):
        scaled().register_kernel("cuda", tvm_ffi=module(), args=("x",), function="positive")


def test_what_is_no_module_for_this_machine_is_refused(tmp_path: Path) -> None:
    def refused(name: str, data: bytes | None = None) -> str:
        path = tmp_path / name
        if data is not None:
            path.write_bytes(data)
        with pytest.raises(DeclarationError) as caught:
            declared("no_module", tvm_ffi=path, function="beyond")
        return str(caught.value).removeprefix("tvm_modules::no_module")

    file = Path(module()).read_bytes()
    assert refused("absent.so").endswith(f": there is no file {tmp_path / 'absent.so'}")
    assert refused("text.so", b"no library") == (
        f" (cpu): {tmp_path / 'text.so'} is no shared library; give one for here"
    )
    arm = file[:18] + (183).to_bytes(2, "little") + file[20:]
    assert refused("arm.so", arm) == (
        f" (cpu): {tmp_path / 'arm.so'} is for another processor; give one for here"
    )


def test_a_call_of_a_module_that_changed_says_what_is_wrong(tmp_path: Path) -> None:
    path = Path(shutil.copyfile(module(), tmp_path / "module.so"))
    operator = declared("changed", tvm_ffi=path, function="beyond")
    operator.build()
    remedy = f". It has to lie beside the kernel's library or at {path}, compiled for this machine"

    def said() -> str:
        with pytest.raises(RuntimeError) as caught:
            operator(torch.ones(2))
        return str(caught.value).removeprefix("tvm_modules::changed: ")

    path.write_bytes(b"no library, though longer than the header of an ELF file, of 64 bytes")
    assert said().startswith("its module does not load here: ")
    assert said().endswith(f"{path}: invalid ELF header{remedy}")
    path.unlink()
    missing = "cannot open shared object file: No such file or directory"
    assert said().endswith(f"{path}: {missing}{remedy}")
    text = SOURCE.read_text()
    other = tvm_ffi.cpp.build_inline("opsmith_other", cpp_sources=text, functions="column")
    shutil.copyfile(other, path)
    assert said() == f"{path} has no tvm-ffi function 'beyond' any more. Register the kernel again"


def test_a_call_on_a_gpu_compiles_and_sets_the_stream() -> None:
    operator = declared("on_a_gpu", function="beyond")
    operator.register_kernel("cuda", tvm_ffi=module(), function="beyond", args=("x", "out"))
    source = operator.kernels["cuda"].source
    unit, beside = source.language.unit(source), source.language.beside(source)
    path = Recipe("tvm_on_a_gpu", objects=[unit], torch="none", **beside).build()
    needed = {one.name for one in dynamic_symbols(path) if not one.defined}
    assert b"TVMFFIEnvSetStream\0" in path.read_bytes()
    assert not any(name.startswith(("aoti_torch", "cuda")) for name in needed)


def test_a_loaded_module_is_found_by_its_function(monkeypatch: pytest.MonkeyPatch) -> None:
    loaded = tvm_ffi.load_module(module())
    operator = declared("loaded", tvm_ffi=loaded, function="beyond")
    assert operator.kernels["cpu"].where == str(Path(module()).resolve())
    with pytest.raises(DeclarationError) as caught:
        declared("nowhere", tvm_ffi=loaded, function="nowhere")
    assert re.sub("=<.*>|=ffi.*[)](?=:)", "=…", str(caught.value)).endswith(
        "a module does not know its file, and none of this process has a tvm-ffi function "
        "'nowhere'. Give the file: tvm_ffi.cpp.build_inline returns its path"
    )


def test_without_tvm_ffi_a_build_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    operator = declared("without", function="beyond")
    monkeypatch.setattr(language.importlib.util, "find_spec", lambda _: None)
    with pytest.raises(MissingDependencyError) as caught:
        operator.build()
    assert str(caught.value) == (
        "tvm_modules::without (cpu): calling a tvm-ffi module needs tvm-ffi, which is not "
        "installed. Get it: pip install 'opsmith[tvm-ffi]'"
    )


def test_a_wheel_for_another_linux_leaves_a_module_out_and_says_so() -> None:
    kernel = multiply_add().kernels["cpu"]
    assert building._obstacle("", kernel, find_platform("native")) == ""
    assert building._obstacle("", kernel, find_platform("x86_64")) == (
        "left out, since its module was compiled elsewhere, which only --platform native takes as "
        "it is; the module comes along, and is called where opsmith and tvm-ffi are"
    )


def test_the_page_shows_an_example_of_tvm_ffis_unedited() -> None:
    page = Path(__file__).parents[3] / "docs" / "how-to" / "tvm_ffi.md"
    ((shown,),) = [re.findall(r'cpp_sources=r"""\n(.*?)"""', page.read_text(), re.DOTALL)]
    example = [line.strip() for line in (tvm_ffi.cpp.load_inline.__doc__ or "").splitlines()]
    lines = [line.strip() for line in shown.splitlines()]
    start = example.index(lines[0])
    assert example[start : start + len(lines)] == lines


def test_a_cpp_program_without_python_calls_a_module_that_lies_beside(tmp_path: Path) -> None:
    original = Path(shutil.copyfile(module(), tmp_path / "module.so"))

    @opsmith.op("tvm_modules::carried")
    def carried(x: Float32[Tensor, "N"], y: Float32[Tensor, "N"]) -> Float32[Tensor, "N"]:
        return x * y + x

    class Model(torch.nn.Module):
        def forward(self, x: Tensor, y: Tensor) -> Tensor:
            result: Tensor = carried(x, y)
            return result.relu()

    carried.register_kernel("cpu", tvm_ffi=original, function="multiply_add")
    x, y = torch.randn(5), torch.randn(5)
    artifact = targets.export(
        Model(), (x, y), target="aotinductor", out=tmp_path / "artifact", say=None
    )
    (use,) = artifact.manifest.operators
    assert use.note == "called directly"
    torch.save((x, y), tmp_path / "in.pt")
    out = tmp_path / "out.pt"

    def run() -> str:
        words = [build_runner(), artifact.folder, tmp_path / "in.pt", "--output", out]
        return subprocess.run(words, env={}, capture_output=True, text=True).stderr

    original.unlink()
    assert run() == ""
    torch.testing.assert_close(torch.load(out)[0], (x * y + x).relu())
    (artifact.folder / "libraries" / "module.so").unlink()
    said = run()
    assert said.startswith("opsmith-run: tvm_modules::carried: its module does not load here: ")
    assert f"Failed to load dynamic shared library {original}" in said


def test_the_checks_find_a_fault_in_machine_code_and_say_what_needs_a_source() -> None:
    @opsmith.op("tvm_modules::beyond")
    def beyond(x: Float32[Tensor, "N"]) -> Float32[Tensor, "N"]:
        return x.clone()

    beyond.register_kernel("cpu", tvm_ffi=module())
    # The harness calls it in guarded memory; in this process it would spoil the heap.
    report = checks.run(beyond, select=["bounds"], isolate=False, examples=4)
    assert (report.rows[-1].check, report.rows[-1].code) == ("bounds", "OPS-MEMORY-BOUNDS")
    select = ["bounds", "schedules", "exact", "sanitize-address"]
    report = checks.run(multiply_add(), select=select, isolate=False, examples=4)
    elsewhere = ("not applicable", "the kernel was compiled elsewhere")
    assert {row.check: (row.status, row.message) for row in report.rows} == {
        "build": ("passed", ""),
        "bounds": ("passed", ""),
        **dict.fromkeys(("schedules", "exact", "sanitize-address"), elsewhere),
    }


def test_adopt_refuses_a_library_without_functions_for_tvm_ffi(cli, tmp_path: Path) -> None:
    (tmp_path / "plain.so").write_text("no library")
    outcome = cli("adopt", tmp_path / "plain.so")
    assert outcome.code == 2
    assert f"{tmp_path / 'plain.so'} exports no function for tvm-ffi" in outcome.stderr
