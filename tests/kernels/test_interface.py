"""A library and a caller of different opsmiths notice each other, and nothing is read amiss."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from jaxtyping import Float32
from torch import Tensor

from opsmith.kernels import INCLUDE, Recipe, adapters
from opsmith.signature import signature_of
from opsmith.system.version import version

KERNEL = """\
#include <opsmith/kernel.h>
#include "{name}.h"
void {name}(const opsmith::Context& ctx, const kernels_test::{name}_args& a) {{
  ctx.parallel_for(0, a.N, 1, [&](int64_t begin, int64_t end) {{
    for (int64_t i = begin; i < end; ++i) a.out[i] = 2 * a.x[i];
  }});
}}
OPSMITH_KERNEL(kernels_test, {name}, cpu)
"""
ABI = (INCLUDE / "opsmith/abi.h").read_text()


LAST = "  uint32_t every_loop = 0;\n"
LEAST = "offsetof(opsmith_context, every_loop)"
LONGER = ABI.replace(LAST, f"{LAST}  void* later;\n")


def older(
    name: str,
    tmp_path: Path,
    abi: str = ABI,
    caller: str = ABI,
    change: Callable[[dict[str, str]], dict[str, str]] = lambda files: files,
):
    """Calls a kernel whose library was built with another ``abi.h`` than its caller's."""

    def function(x: Float32[Tensor, "N"]) -> Float32[Tensor, "N"]: ...

    signature = signature_of(function, f"kernels_test::{name}")
    source = tmp_path / f"{name}.cpp"
    source.write_text(KERNEL.format(name=name))
    files = adapters.kernel_files(signature)
    flags = ("-O0",)
    old = {key: text.replace(f'"{version()}"', '"0.0.1"') for key, text in change(files).items()}
    kernel = Recipe(
        f"{name}__kernel", [source], {**old, "opsmith/abi.h": abi}, flags=flags, torch="none"
    ).build()
    adapter = {
        **files,
        "opsmith/abi.h": caller,
        "adapter.cpp": adapters.torch_adapter(signature, "cpu", False),
    }
    path = Recipe(
        f"{name}__adapter", [], adapter, link_libraries=[str(kernel)], flags=flags
    ).build()
    definition = torch.library.Library("kernels_test", "FRAGMENT")
    definition.define(signature.schema())
    ctypes.CDLL(str(kernel))
    library = ctypes.CDLL(str(path))
    assert library[f"opsmith_torch_register__kernels_test__{name}__cpu"]() == 0
    return getattr(torch.ops.kernels_test, name), (definition, library)


@pytest.mark.long  # test_a_library_that_needs_more_of_its_caller_says_so
def test_a_library_of_another_interface_says_which_two_do_not_fit(tmp_path: Path) -> None:
    abi = ABI.replace("interface_version = 1;", "interface_version = 7;")
    assert abi != ABI
    call, _alive = older("interface_seven", tmp_path, abi)
    with pytest.raises(RuntimeError) as caught:
        call(torch.ones(3))
    assert str(caught.value) == (
        "kernels_test::interface_seven: the kernel's library was built by opsmith 0.0.1 (kernel "
        f"interface 7, a context of 64 bytes), and is called by opsmith {version()} (kernel "
        "interface 1, a context of 72 bytes). Build the library again with opsmith "
        f"{version()}, or call it by opsmith 0.0.1."
    )


@pytest.mark.slow
def test_a_library_that_needs_more_of_its_caller_says_so(tmp_path: Path) -> None:
    needs = LONGER.replace(LEAST, "sizeof(opsmith_context)")
    call, _alive = older("longer_context", tmp_path, abi=needs)
    with pytest.raises(RuntimeError, match=r"interface 1, a context of 80 bytes.* of 72 bytes"):
        call(torch.ones(3))


@pytest.mark.slow
def test_a_library_that_needs_less_of_its_caller_runs(tmp_path: Path) -> None:
    assert LONGER != ABI
    call, _alive = older("shorter_context", tmp_path, caller=LONGER)
    assert call(torch.ones(3)).tolist() == [2, 2, 2]


@pytest.mark.long  # test_a_library_that_needs_less_of_its_caller_runs
def test_a_library_runs_for_a_caller_of_before_the_last_field(tmp_path: Path) -> None:
    size = "size = sizeof(opsmith_context)"
    assert size in ABI
    call, _alive = older("earlier_caller", tmp_path, caller=ABI.replace(size, "size = 64"))
    assert call(torch.ones(3)).tolist() == [2, 2, 2]


LOOPS = """
#include <opsmith/kernel.h>

// How many of ten elements go through the runtime, where a hundred are worth a thread.
extern "C" OPSMITH_EXPORT int64_t through_runtime(uint32_t size, uint32_t every_loop) {
  static int64_t seen;
  seen = 0;
  opsmith::opsmith_context context{};
  context.size = size;
  context.every_loop = every_loop;
  context.parallel_for = [](void*, int64_t begin, int64_t end, int64_t,
                            void (*body)(int64_t, int64_t, void*), void* state) {
    seen += end - begin;
    body(begin, end, state);
  };
  opsmith::Context(&context).parallel_for(0, 10, 100, [](int64_t, int64_t) {});
  return seen;
}
"""


@pytest.mark.slow
def test_small_loops_go_through_a_runtime_that_asks_for_every_one() -> None:
    path = Recipe("every_loop", [], {"loops.cpp": LOOPS}, flags=("-O0",), torch="none").build()
    through_runtime = ctypes.CDLL(str(path)).through_runtime
    assert through_runtime(72, 1) == 10
    assert through_runtime(72, 0) == 0
    # What lies behind the context of an earlier caller is not its.
    assert through_runtime(64, 1) == 0


@pytest.mark.slow
def test_a_library_of_another_declaration_says_so(tmp_path: Path) -> None:
    def change(files: dict[str, str]) -> dict[str, str]:
        name = "another_declaration.h"
        return {
            **files,
            name: files[name].replace("  int64_t N;\n};", "  int64_t N;\n  int64_t M;\n};"),
        }

    call, _alive = older("another_declaration", tmp_path, change=change)
    with pytest.raises(RuntimeError) as caught:
        call(torch.ones(3))
    assert str(caught.value) == (
        "kernels_test::another_declaration: the kernel was compiled for arguments that take 56 "
        "bytes, and is called with 48: the operator's declaration has changed since. Build the "
        "kernel's library again."
    )


ENTRY = """
extern "C" __attribute__((visibility("default"))) int interface_entry() { return %d; }
extern "C" __attribute__((visibility("default"))) int interface_adapter() {
  return interface_entry();
}
"""


@pytest.mark.slow
def test_an_adapter_calls_the_kernel_that_it_was_built_with_whichever_was_loaded_first() -> None:
    """Artifacts of several releases may be in one process, with kernels of one name."""
    flags, found = ("-O0",), []
    for release in (1, 2):
        library = Recipe(
            f"release_{release}", [], {"entry.cpp": ENTRY % release}, flags=flags, torch="none"
        ).build()
        loaded = ctypes.CDLL(str(library), mode=ctypes.RTLD_GLOBAL)
        found.append(loaded.interface_adapter())
    assert found == [1, 2]
