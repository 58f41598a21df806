"""What CMake is told of units in another language than C++: all that it takes is the language's."""

from __future__ import annotations

import re
import shlex
import subprocess
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

import opsmith.kernels
from opsmith.kernels import Generated, Unit
from opsmith.kernels.toolchain.cmake import RELEASE, cmake_lists, options_of
from opsmith.kernels.toolchain.compilers import Compiler, find_compiler
from opsmith.kernels.toolchain.recipe import Recipe
from opsmith.kernels.toolchain.torch_paths import TorchPaths
from opsmith.kernels.toolchain.units import CMakeLanguage

HIP = CMakeLanguage(
    name="HIP",
    compiler=Compiler("/opt/rocm/bin/amdclang++", "19"),
    architectures="gfx90a;gfx942",
    options=("-munsafe-fp-atomics",),
    torch_libraries=("torch_hip", "c10_hip"),
)


@pytest.fixture
def unit(tmp_path: Path) -> Unit:
    (tmp_path / "kernel.hip").write_text("")
    return Unit("kernel", tmp_path / "kernel.hip", Generated.of(None), language=HIP)


def recipe(*units: Unit, torch: str = "none") -> Recipe:
    return Recipe("sample", objects=units, generated={"adapter.cpp": ""}, torch=torch)


def lists(made: Recipe, parts: Sequence[tuple[Unit, Path | None]]) -> str:
    return cmake_lists(made.name, made.tools, parts, languages=made.languages, torch=made.torch)


def test_a_unit_is_compiled_by_its_language_with_its_options(unit: Unit) -> None:
    made = recipe(unit, replace(unit, name="other"))
    host = made.tools.compiler.path
    text = lists(made, [(one, None) for one in made.units()])
    for line in (
        "set(CMAKE_HIP_COMPILER [==[/opt/rocm/bin/amdclang++]==])",
        f"set(CMAKE_HIP_HOST_COMPILER [==[{host}]==])",
        "set(CMAKE_HIP_ARCHITECTURES gfx90a;gfx942)",
        "set(CMAKE_HIP_COMPILER_WORKS TRUE)",
        "project(sample LANGUAGES CXX HIP)",
        f"set_source_files_properties([==[{unit.path}]==] PROPERTIES LANGUAGE HIP)",
    ):
        assert text.count(f"{line}\n") == (2 if unit.path.name in line else 1), line
    of_unit = [line for line in text.splitlines() if "(unit0 " in line]
    assert any("HIP_VISIBILITY_PRESET hidden" in line for line in of_unit)
    # In one group, as CMake drops an option that another group has too: a second -isystem.
    (options,) = (line for line in of_unit if line.startswith("target_compile_options"))
    _, _, group = options.removesuffix("]==])").partition("[==[SHELL:")
    assert shlex.split(group)[-1] == "-munsafe-fp-atomics"
    assert not any("-march" in line for line in of_unit)
    of_adapter = [line for line in text.splitlines() if "(unit2 " in line]
    assert any("CXX_VISIBILITY_PRESET hidden" in line for line in of_adapter)
    assert not any("-munsafe-fp-atomics" in line for line in of_adapter)


def test_the_runtime_of_a_language_is_linked_with_an_object_from_the_cache(unit: Unit) -> None:
    text = lists(recipe(unit), [(unit, Path("/cache/kernel.o"))])
    assert "IMPORTED_LOCATION [==[/cache/kernel.o]==] IMPORTED_LINK_INTERFACE_LANGUAGES HIP" in text
    assert "target_link_libraries(sample PRIVATE [==[unit0]==])" in text


@pytest.mark.parametrize(
    ("torch", "linked"),
    [
        ("none", []),
        ("stable", ["torch_cpu", "torch_hip"]),
        ("full", ["torch", "torch_cpu", "torch_python", "c10", "torch_hip", "c10_hip"]),
    ],
)
def test_what_pytorch_has_for_the_device_is_linked_as_far_as_pytorch_may_be_used(
    unit: Unit, monkeypatch: pytest.MonkeyPatch, torch: str, linked: list[str]
) -> None:
    monkeypatch.setattr(TorchPaths, "links", lambda self, names: list(names))
    text = lists(recipe(unit, torch=torch), [(unit, None)])
    (links,) = re.findall(r"target_link_libraries\(sample PRIVATE (.*)\)", text)
    assert re.findall(r"\[==\[(.*?)\]==\]", links) == linked


def test_another_compiler_architecture_or_option_is_another_object(unit: Unit) -> None:
    tools = recipe(unit).tools
    keys = {unit.key(tools), replace(unit, language=None).key(tools)}
    for change in (
        {"compiler": replace(HIP.compiler, version="20")},
        {"architectures": "gfx90a"},
        {"options": ()},
    ):
        keys.add(replace(unit, language=replace(HIP, **change)).key(tools))
    assert len(keys) == 5


def test_cpp_alone_asks_for_no_other_language() -> None:
    made = recipe()
    assert made.languages == []
    text = lists(made, [(one, None) for one in made.units()])
    assert "project(sample LANGUAGES CXX)\n" in text and "CUDA" not in text


def test_only_devices_languages_and_nvcc_know_cuda() -> None:
    folder = Path(opsmith.kernels.__file__).parent
    know = {
        file.name
        for file in (*folder.glob("*.py"), *(folder / "toolchain").glob("*.py"))
        for line in file.read_text().splitlines()
        # An example in a docstring or comment is knowledge of nothing.
        if re.search(r"cuda|nvcc", re.sub(r"``.*?``|#.*", "", line), re.IGNORECASE)
    }
    assert know == {"devices.py", "language_registry.py", "nvcc.py"}


SCANS = """
#include <opsmith/detail/values.h>
namespace opsmith::detail {
template bool all_inside<int64_t>(const int64_t*, int64_t, const Range&);
template bool all_inside<float>(const float*, int64_t, const Range&);
template bool runs_inside<int32_t>(const int32_t*, const int32_t*, int64_t, int64_t);
template bool in_order<int32_t>(const int32_t*, int64_t, bool);
}  // namespace opsmith::detail
"""


@pytest.mark.skipif(not find_compiler("a test").is_gcc, reason="asks GCC what it did")
def test_loops_over_values_are_vectorized_in_what_is_written_around_kernels(
    tmp_path: Path,
) -> None:
    made = Recipe("scans", generated={"scans.cpp": SCANS}, torch="stable")
    (unit,) = made.units()
    words = [*RELEASE, *options_of(unit, made.tools), "-fopt-info-vec"]
    command = [made.tools.compiler.path, *words, "-c", str(unit.path), "-o", str(tmp_path / "o")]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    lines = re.findall(r"values\.h:(\d+):\S+ optimized: +loop vectorized", done.stderr)
    # Of integers, of floats, of runs, and of what is sorted, strictly or not.
    assert len(set(lines)) == 5, done.stderr
