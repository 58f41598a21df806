"""`opsmith adopt library.so`: declarations of a tvm-ffi module's functions, as their types tell."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import tvm_ffi.cpp

from opsmith.drafting import modules
from opsmith.operators import Operator
from opsmith.sources.importing import import_module

pytestmark = pytest.mark.slow

SOURCE = Path(__file__).parents[1] / "kernels" / "sources" / "tvm_ffi_module.cpp"
MORE = """
void alone(TensorView x) {}
void listed(TensorView x, ffi::Array<int64_t> sizes, TensorView out) {}
"""
# A function that was not compiled from types.
BARE = """
#include <tvm/ffi/c_api.h>
extern "C" TVM_FFI_DLL_EXPORT int __tvm_ffi_bare(void*, const TVMFFIAny*, int32_t, TVMFFIAny*) {
  return 0;
}
"""


@pytest.fixture(scope="module")
def module() -> Path:
    functions = ["multiply_add", "scaled", "column", "alone", "listed"]
    text = SOURCE.read_text() + MORE + BARE.replace("bare", "lambda")
    return Path(tvm_ffi.cpp.build_inline("to_draft", cpp_sources=text, functions=functions))


def test_a_draft_can_be_imported_and_called(cli: Any, module: Path, tmp_path: Path) -> None:
    file = tmp_path / "drafted_module.py"
    assert cli("adopt", module, "--out", file).code == 0
    drafted = import_module(str(file))
    found = {name: one for name, one in vars(drafted).items() if isinstance(one, Operator)}
    assert set(found) == {"multiply_add", "scaled", "column"}
    x = torch.randn(3)
    torch.testing.assert_close(found["multiply_add"](x, x), x * x + x)
    one, two = found["scaled"](x, 2, 0.5, True, "", None, None)
    torch.testing.assert_close((one, two), (0.5 - 2 * x, torch.full((3,), 7.0)))
    with pytest.raises(
        NotImplementedError, match="my_ops::scaled: write what is right, in PyTorch"
    ):
        found["scaled"].reference(x, 2, 0.5, True, "", None, None)


def test_a_draft_says_what_to_fill_in(cli: Any, module: Path) -> None:
    text = cli("adopt", module).stdout
    assert "Fill in: names in place of a0, a1, …; the dtype and the dimensions" in text
    assert (
        "# column(DLTensor*, DLTensor*, int, int) -> void, where a1 is taken for the result\n"
        '@opsmith.op("my_ops::column")\n'
        'def column(a0: Float32[Tensor, "N0"], a2: int, a3: int) -> Float32[Tensor, "N0"]:\n'
    ) in text
    for line in (
        "# alone(DLTensor*) -> void: no declaration was found that fits.",
        "# listed(DLTensor*, Array<int>, DLTensor*) -> void: no declaration was found that fits.",
        "# The types of lambda are not known.",
    ):
        assert f"\n{line}\n" in text


def test_functions_without_types_are_listed(cli: Any, tmp_path: Path) -> None:
    path = tvm_ffi.cpp.build_inline("opsmith_bare", cpp_sources=BARE, functions=[])
    assert cli("adopt", path).stdout == (
        f"# {path} exports for tvm-ffi: bare\n"
        "# register_kernel(tvm_ffi=, function=) makes one the kernel of an operator that you "
        "declare.\n"
    )


def test_a_function_that_does_not_end_is_not_waited_for(
    cli: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = "#include <unistd.h>\n" + BARE.replace("return 0", "for (;;) pause()").replace(
        "bare", "waits"
    )
    text += "void told(tvm::ffi::TensorView x, tvm::ffi::TensorView y) {}"
    path = tvm_ffi.cpp.build_inline("opsmith_waits", cpp_sources=text, functions=["told"])
    monkeypatch.setattr(modules, "_SECONDS", 20.0)
    drafted = cli("adopt", path).stdout
    assert "def told(" in drafted and "# The types of waits are not known." in drafted
