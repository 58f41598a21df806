"""Compiling: what the user reads when it fails, what is cached, and what a library may need."""

from __future__ import annotations

import ctypes
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from jaxtyping import Float, Float32
from torch import Tensor

from opsmith.errors import BuildError, MissingDependencyError
from opsmith.kernels import KernelSource, Recipe, defines_operator, kernel_source
from opsmith.kernels.languages import cuda
from opsmith.kernels.languages.cpp import torch_adapter
from opsmith.kernels.languages.kernel_mistakes import explain
from opsmith.kernels.toolchain.audit import dynamic_symbols
from opsmith.signature import signature_of


def scale(x: Float[Tensor, "N"], factor: float) -> Float[Tensor, "N"]: ...


SIGNATURE = signature_of(scale, "kernels_test::scale")
KERNEL = """\
#include <opsmith/kernel.h>
#include "scale.h"
#include "amount.h"

template <typename T>
void scale(const opsmith::Context&, const kernels_test::scale_args<T>& a) {
  for (int64_t i = 0; i < a.N; ++i) a.out[i] = a.x[i] * static_cast<T>(a.factor) * amount;
}
OPSMITH_KERNEL(kernels_test, scale, cpu, float)
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "scale.cpp").write_text(KERNEL)
    (tmp_path / "amount.h").write_text("constexpr int amount = 1;\n")
    return tmp_path


def kernel(folder: Path, **options) -> KernelSource:
    options.setdefault("flags", ("-O0",))
    return kernel_source(SIGNATURE, "cpu", folder / "scale.cpp", **options)


def plain(folder: Path, text: str, name: str = "plain", **options) -> Path:
    """A library of one small source, which needs nothing of opsmith."""
    source = folder / f"{name}.cpp"
    source.write_text(text)
    return Recipe(name, [source], flags=("-O0",), **options).build()


def test_a_compile_error_is_the_compilers_and_names_the_users_line(folder: Path) -> None:
    source = folder / "scale.cpp"
    source.write_text(KERNEL.replace("a.x[i] *", "a.x[i] times"))
    with pytest.raises(BuildError) as caught:
        kernel(folder).build()
    text = str(caught.value)
    first, *rest = text.splitlines()
    assert first == f"kernels_test::scale (cpu): {source} did not compile:"
    assert any(line.startswith(f"{source}:7:") and "error: " in line for line in rest)
    for noise in ("ninja", "FAILED", "-DTORCH_TARGET_VERSION", "CMakeFiles"):
        assert noise not in text


def first_line(folder: Path, text: str) -> str:
    """Build a source that is wrong; what the message says after the source's name."""
    source = folder / "scale.cpp"
    source.write_text(text)
    with pytest.raises(BuildError) as caught:
        kernel(folder).build()
    first, *rest = str(caught.value).splitlines()
    assert any("error: " in line or "undefined reference" in line for line in rest)
    return first.removeprefix(f"kernels_test::scale (cpu): {source} ")


@pytest.mark.slow
def test_a_forgotten_header_is_named_before_the_compilers_words(folder: Path) -> None:
    assert first_line(folder, KERNEL.replace('#include "scale.h"\n', "")) == (
        'did not compile: it does not include "scale.h", which opsmith writes from the declaration '
        'of kernels_test::scale: add #include "scale.h".'
    )


def test_a_source_that_is_not_registered_for_an_operator_is_told_to_be(folder: Path) -> None:
    assert first_line(folder, KERNEL.replace("#include", '#include "other.h"\n#include', 1)) == (
        'did not compile: there is no "other.h": for a source, opsmith writes the headers of the '
        "operators that it is registered for, here kernels_test::scale. If other is another "
        "operator, register the source for it too, with register_kernel(…, source=…), before any "
        "of them is called."
    )


def test_a_kernel_of_another_name_is_told_the_one_that_is_looked_for(folder: Path) -> None:
    assert first_line(folder, KERNEL.replace("void scale(", "void scaled(")) == (
        "did not compile: it has no function scale, which OPSMITH_KERNEL looks for by the "
        "operator's name: declare the kernel as template <typename T> void scale(const "
        "opsmith::Context&, const kernels_test::scale_args<T>&)."
    )


def test_a_namespace_that_the_system_has_for_something_else_is_named(tmp_path: Path) -> None:
    source = tmp_path / "scale.cpp"
    source.write_text(KERNEL.replace("kernels_test", "time").replace('#include "amount.h"', ""))
    signature = signature_of(scale, "time::scale")
    with pytest.raises(BuildError) as caught:
        kernel_source(signature, "cpu", source, flags=("-O0",)).build()
    assert str(caught.value).splitlines()[0] == (
        f"time::scale (cpu): {source} did not compile: 'time' names the operator or its namespace, "
        "and something else in a header of the system or of C++: choose another name."
    )


def test_a_helper_that_nothing_defines_is_named_before_the_linkers_words(folder: Path) -> None:
    text = KERNEL.replace("template", "int helper(int);\ntemplate", 1)
    assert first_line(folder, text.replace("* amount", "* helper(amount)")) == (
        "did not link: nothing defines helper(int), which it uses: define it in the source, or in "
        "a header that the source includes, as a kernel is compiled from one file."
    )


LINE = "OPSMITH_KERNEL(kernels_test, scale, cpu, float)"
RIGHT = "OPSMITH_KERNEL(kernels_test, scale, cpu, float, double)"
NOWHERE = "undefined reference to `opsmith_kernel__kernels_test__scale__cpu'"


@pytest.mark.parametrize(
    ("line", "output", "said"),
    [
        (
            "OPSMITH_KERNEL(kernels_test, scale, cpu)",
            "error: class template argument deduction failed:",
            "OPSMITH_KERNEL(kernels_test, scale, cpu) names no element type, and "
            "kernels_test::scale has the generic dtype Float: write after the device which of its "
            f"dtypes the kernel is for, as in {RIGHT}",
        ),
        (
            "OPSMITH_KERNEL(kernels_test, scale, cpu, scale)",
            "error: type/value mismatch at argument 1",
            "OPSMITH_KERNEL(kernels_test, scale, cpu, scale) takes element types after the device, "
            f"and finds the function by the operator's name: write {RIGHT}",
        ),
        (
            "OPSMITH_KERNEL(kernels_test, scale, cpu, float16)",
            "error: 'float16' was not declared in this scope",
            "OPSMITH_KERNEL(kernels_test, scale, cpu, float16) takes types of C++: write "
            "opsmith::half for float16",
        ),
        (
            "OPSMITH_KERNEL(kernels_test, scales, cpu, float)",
            "error: unknown type name 'kernels_test__scales_raw'",
            "OPSMITH_KERNEL(kernels_test, scales, cpu, float) is for kernels_test::scales, and the "
            f"source is registered for kernels_test::scale: write {RIGHT}, or register the source "
            "for kernels_test::scales too, with register_kernel(…, source=…), before any of them "
            "is called",
        ),
        (
            "OPSMITH_KERNEL(kernels_test, scale, cuda, float)",
            NOWHERE,
            f"it has no line {RIGHT}, which makes a function the kernel of kernels_test::scale "
            "(cpu); it has OPSMITH_KERNEL(kernels_test, scale, cuda, float)",
        ),
        (
            "",
            "undefined symbol: opsmith_kernel__kernels_test__scale__cpu",
            f"it has no line {RIGHT}, which makes a function the kernel of kernels_test::scale "
            "(cpu)",
        ),
        (
            LINE,
            'error: no instance of function template "scale" matches the argument list',
            "its function scale cannot be called with what OPSMITH_KERNEL gives it: declare it as "
            "template <typename T> void scale(const opsmith::Context&, const "
            "kernels_test::scale_args<T>&)",
        ),
        (LINE, 'error: identifier "amount" is undefined', ""),
        (LINE, "error: use of undeclared identifier 'kernels_test'", ""),
    ],
)
def test_a_wrong_kernel_line_is_told_the_right_one(
    folder: Path, line: str, output: str, said: str
) -> None:
    (folder / "scale.cpp").write_text(KERNEL.replace(LINE, line))
    assert explain(kernel(folder), output) == said


ARGS = "kernels_test::scale_args"
TENSOR = (
    "data(), size(i), sizes(), stride(i), strides(), dim(), numel(), and elements as x[i] and "
    "x(i, j)"
)


@pytest.mark.parametrize(
    ("output", "said"),
    [
        (
            f"error: 'const struct {ARGS}<float>' has no member named 'x_strides'",
            f"{ARGS} has no member x_strides; it has x, factor, out, N; x has {TENSOR}",
        ),
        (
            f"error: no member named 'output' in '{ARGS}<float>'",
            f"{ARGS} has no member output; it has x, factor, out, N",
        ),
        (
            f'error: class "{ARGS}<float>" has no member "y"',
            f"{ARGS} has no member y; it has x, factor, out, N",
        ),
        (
            "error: 'const class opsmith::Tensor<const float>' has no member named 'data_ptr'",
            f"opsmith::Tensor has no member data_ptr; it has {TENSOR}",
        ),
        (
            "error: 'const class opsmith::Context' has no member named 'parallelfor'; did you",
            "opsmith::Context has no member parallelfor; it has parallel_for(begin, end, grain, "
            "body)",
        ),
        ("error: 'struct Mine' has no member named 'x_strides'", ""),
    ],
)
def test_an_unknown_member_is_told_those_that_there_are(
    folder: Path, output: str, said: str
) -> None:
    assert explain(kernel(folder), output) == said


@pytest.mark.parametrize("macro", ["OPSMITH_KERNAL", "REGISTER_KERNEL"])
def test_a_macro_that_does_not_exist_is_told_the_one_that_does(folder: Path, macro: str) -> None:
    (folder / "scale.cpp").write_text(KERNEL.replace("OPSMITH_KERNEL", macro))
    output = "error: expected constructor, destructor, or type conversion before '(' token"
    assert explain(kernel(folder), output) == (
        f"there is no {macro}, which kernels_test::scale is given to: write {RIGHT}"
    )


def test_a_macro_of_the_sources_own_is_left_to_the_compiler(folder: Path) -> None:
    text = KERNEL.replace(LINE, f"#define MINE(...) {LINE}\nMINE(kernels_test, scale, amount)")
    (folder / "scale.cpp").write_text(text)
    assert explain(kernel(folder), "error: something else") == ""


def test_an_operator_of_fixed_dtypes_has_a_kernel_line_without_types(folder: Path) -> None:
    def scale(x: Float32[Tensor, "N"]) -> Float32[Tensor, "N"]: ...

    fixed = signature_of(scale, "kernels_test::scale")
    assert explain(kernel_source(fixed, "cpu", folder / "scale.cpp"), "error: …") == (
        f"{LINE} names element types, and kernels_test::scale has no generic dtype that they "
        "could be: write OPSMITH_KERNEL(kernels_test, scale, cpu)"
    )


def test_a_warning_is_shown(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    plain(folder, "#warning look here\n", "warned")
    assert f"{folder}/warned.cpp:1:2: warning: #warning look here" in caplog.text
    assert "ninja" not in caplog.text


def test_an_undefined_function_is_found_while_linking(folder: Path) -> None:
    with pytest.raises(BuildError, match="missing_function"):
        plain(folder, "void missing_function(); void f() { missing_function(); }")


def test_a_missing_source(folder: Path) -> None:
    with pytest.raises(BuildError, match=r"there is no file .*nowhere\.cpp"):
        Recipe("nowhere", [folder / "nowhere.cpp"]).build()


def test_no_compiler(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(folder))
    monkeypatch.delenv("CXX", raising=False)
    with pytest.raises(MissingDependencyError) as caught:
        kernel(folder).build()
    text = str(caught.value)
    assert text.startswith("kernels_test::scale (cpu): needs a C++ compiler, and none is on the")
    assert "apt install g++" in text
    assert "set CXX" in text
    monkeypatch.setenv("CXX", "no-such-compiler")
    with pytest.raises(
        MissingDependencyError, match="CXX names the C\\+\\+ compiler 'no-such-compiler'"
    ):
        kernel(folder).build()


def test_a_compiler_that_does_not_run(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = folder / "broken"
    broken.write_text("#!/bin/sh\nexit 3\n")
    broken.chmod(0o755)
    monkeypatch.setenv("CXX", str(broken))
    with pytest.raises(MissingDependencyError, match="does not run"):
        kernel(folder).build()


@pytest.mark.slow
def test_the_cache_knows_what_is_included(folder: Path) -> None:
    first = kernel(folder).build()
    assert kernel(folder).build() == first
    header = folder / "amount.h"
    header.write_text("constexpr int amount = 2;\n")
    second = kernel(folder).build()
    assert second != first
    header.write_text("constexpr int amount = 1;\n")
    # Both are still there.
    assert kernel(folder).build() == first
    assert second.exists()


def test_the_cache_knows_flags_and_environment(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = 'extern "C" int value() { return VALUE; }'
    monkeypatch.setenv("CXXFLAGS", "-DVALUE=1")
    one = plain(folder, text)
    monkeypatch.setenv("CXXFLAGS", "-DVALUE=2")
    two = plain(folder, text)
    assert one != two
    assert plain(folder, text, defines=("OTHER",)) not in (one, two)
    monkeypatch.setenv("OPSMITH_ARCH", "generic")
    assert plain(folder, text).parent.parent not in (one.parent.parent, two.parent.parent)


def test_a_damaged_library_is_built_again(folder: Path) -> None:
    text = 'extern "C" int damaged() { return 1; }'
    path = plain(folder, text, "damaged")
    path.write_bytes(b"not a library")
    again = plain(folder, text, "damaged")
    assert any(symbol.name == "damaged" for symbol in dynamic_symbols(again)) or again.exists()
    assert again.read_bytes().startswith(b"\x7fELF")


@pytest.mark.slow
def test_a_cached_kernel_loads_without_heavy_imports(folder: Path) -> None:
    script = f"""
import sys, torch, jaxtyping
from pathlib import Path
sys.path.insert(0, {str(Path(__file__).parents[3])!r})
from tests.kernels.toolchain.test_build import kernel
kernel(Path({str(folder)!r})).load()
print([name for name in ("jinja2", "cmake", "ninja", "rich", "filelock") if name in sys.modules])
"""
    runs = [
        subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
        for _ in range(2)
    ]
    imported = runs[1].stdout
    # pytest, which the test file imports, may bring rich in.
    assert not set(json.loads(imported.replace("'", '"'))) - {"rich"}


def test_two_processes_build_at_once(folder: Path) -> None:
    text = 'extern "C" int together() { return 1; }'
    (folder / "together.cpp").write_text(text)
    script = (
        "from opsmith.kernels import Recipe; "
        f"print(Recipe('together', [{str(folder / 'together.cpp')!r}]).build())"
    )
    processes = [
        subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    paths = {process.communicate(timeout=120)[0].strip() for process in processes}
    assert all(process.returncode == 0 for process in processes)
    assert len(paths) == 1
    recipe = Path(paths.pop()).parent.parent
    assert len(json.loads((recipe / "variants.json").read_text())) == 1


def test_torchs_cpp_interface_is_refused_by_name(folder: Path) -> None:
    text = "namespace at { int get_num_threads(); }\nint f() { return at::get_num_threads(); }\n"
    with pytest.raises(BuildError) as caught:
        plain(folder, text, "unstable")
    message = str(caught.value)
    assert "unstable.cpp needs symbols of PyTorch's C++ interface" in message
    assert "\n  at::get_num_threads()\n" in message
    assert 'api="torch"' in message


def test_torchs_cpp_headers_are_refused_with_the_way_round(folder: Path) -> None:
    with pytest.raises(BuildError) as caught:
        plain(folder, "#include <ATen/core/Tensor.h>\n", "headers")
    assert 'or register it with api="torch"' in str(caught.value)


def test_a_library_for_another_runtime_has_nothing_of_torch(folder: Path) -> None:
    shim = "#include <torch/csrc/inductor/aoti_torch/c/shim.h>\n"
    use = 'extern "C" int f() { return aoti_torch_device_type_cpu(); }\n'
    with pytest.raises(BuildError, match="aoti_torch_device_type_cpu"):
        plain(folder, shim + use, "elsewhere", torch="none")
    half = "#include <opsmith/kernel.h>\n"
    path = plain(folder, half + 'extern "C" float f() { return opsmith::half(2.f); }', torch="none")
    assert not [s.name for s in dynamic_symbols(path) if "torch" in s.name]


@pytest.mark.slow
def test_a_program_without_python_needs_only_load_the_library(tmp_path: Path) -> None:
    def standalone(x: Float[Tensor, "N"]) -> Float[Tensor, "N"]: ...

    signature = signature_of(standalone, "kernels_static::standalone")
    source = tmp_path / "standalone.cpp"
    text = KERNEL.replace("kernels_test", "kernels_static").replace("scale", "standalone")
    text = text.replace(" * static_cast<T>(a.factor) * amount", "").replace(
        '#include "amount.h"', ""
    )
    source.write_text(text)
    kernel = kernel_source(signature, "cpu", source, flags=("-O0",))
    path = kernel.build_beside(
        "standalone",
        torch_adapter(kernel),
        defines=("OPSMITH_STATIC_REGISTRATION",),
        torch="stable",
        what="standalone",
    )
    ctypes.CDLL(str(path))
    assert torch.ops.kernels_static.standalone(torch.ones(2)).tolist() == [1, 1]


TORCH_SOURCE = """\
#include <torch/library.h>

static at::Tensor scale(const at::Tensor& x, double factor) { return x.mul(factor); }
DEFINITION
TORCH_LIBRARY_IMPL(kernels_torch, CPU, m) { m.impl("scale", &scale); }
"""


@pytest.mark.slow
def test_a_torch_library_source_works_as_it_is(tmp_path: Path) -> None:
    signature = signature_of(scale, "kernels_torch::scale")
    source = tmp_path / "scale.cpp"
    definition = (
        'TORCH_LIBRARY(kernels_torch, m) { m.def("scale(Tensor x, float factor) -> Tensor"); }'
    )
    source.write_text(TORCH_SOURCE.replace("DEFINITION", f"// {definition}"))
    assert not defines_operator(source, signature)
    source.write_text(TORCH_SOURCE.replace("DEFINITION", definition))
    assert defines_operator(source, signature)
    assert not defines_operator(source, SIGNATURE)
    library = kernel_source(signature, "cpu", source, api="torch", flags=("-O0",)).load()
    library.register()
    assert torch.ops.kernels_torch.scale(torch.ones(2), 3.0).tolist() == [3, 3]
    assert library.dtypes() == ()


def test_a_static_cpp_library_stays_inside(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", "g++")
    monkeypatch.setenv("LDFLAGS", "-static-libstdc++")
    text = "#include <locale>\nbool is_space(char x) { return std::isspace(x, std::locale()); }\n"
    path = plain(folder, text)
    names = [symbol.name for symbol in dynamic_symbols(path) if symbol.defined]
    assert [name for name in names if "locale" in name] == []


@pytest.mark.long  # `make nvcc` runs it
@pytest.mark.skipif(shutil.which("nvcc") is None, reason="no nvcc")
def test_a_cuda_kernel_compiles_and_links(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPSMITH_CUDA_ARCHS", "80")
    # The headers are those of a PyTorch that has CUDA, but its shims are not there to link.
    monkeypatch.setenv("LDFLAGS", "-Wl,-z,undefs")
    monkeypatch.setattr(cuda, "require_cuda", lambda source, torch: None)
    source = tmp_path / "scale.cu"
    source.write_text(CUDA_KERNEL)
    kernel = kernel_source(SIGNATURE, "cuda", source)
    # The second library finds the kernel compiled.
    again = kernel.build_beside("again", torch_adapter(kernel), torch="stable", what="again")
    for path in (kernel.build(), again):
        symbols = {symbol.name: symbol.defined for symbol in dynamic_symbols(path)}
        assert symbols["opsmith_kernel__kernels_test__scale__cuda"]
        assert "aoti_torch_get_current_cuda_stream" in symbols
        # CUDA's runtime is linked.
        assert "__cudaRegisterFatBinary" not in symbols


CUDA_KERNEL = """\
#include <opsmith/kernel.h>
#include "scale.h"

template <typename T>
__global__ void multiply(const T* x, T* out, int64_t count, T factor) {
  const int64_t i = blockIdx.x * int64_t{blockDim.x} + threadIdx.x;
  if (i < count) out[i] = x[i] * factor;
}

template <typename T>
void scale(const opsmith::Context& ctx, const kernels_test::scale_args<T>& a) {
  if (a.N == 0) return;
  multiply<<<(a.N + 255) / 256, 256, 0, static_cast<cudaStream_t>(ctx.stream())>>>(
      a.x.data(), a.out.data(), a.N, static_cast<T>(a.factor));
}
OPSMITH_KERNEL(kernels_test, scale, cuda, float, opsmith::half)
"""


def test_the_environment_of_the_tests_is_their_own(cache: Path) -> None:
    assert os.environ["OPSMITH_CACHE"] == str(cache)
