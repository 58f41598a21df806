"""Artifacts bring along what a kernel in a tvm-ffi module needs: the module, tvm-ffi's library."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
import tvm_ffi.cpp
from jaxtyping import Float32
from torch import Tensor

import opsmith
from opsmith import targets
from opsmith.errors import ExportError
from opsmith.targets.exporting.operator_export import copy_needed

pytestmark = pytest.mark.slow

SOURCE = Path(__file__).parents[2] / "kernels" / "sources" / "tvm_ffi_module.cpp"


@pytest.fixture(scope="module")
def module() -> Path:
    functions = ["multiply_add", "scaled"]
    source = SOURCE.read_text()
    return Path(tvm_ffi.cpp.build_inline("traveller", cpp_sources=source, functions=functions))


def declare(name: str, module: Path) -> Any:
    def reference(x: Float32[Tensor, "N"], y: Float32[Tensor, "N"]) -> Any:
        return x * y + x

    reference.__annotations__["return"] = Float32[Tensor, "N"]
    reference.__name__ = name
    operator = opsmith.op(f"tvm_travel::{name}")(reference)
    operator.register_kernel("cpu", tvm_ffi=module, function="multiply_add")
    return operator


class Model(torch.nn.Module):
    def __init__(self, operator: Any) -> None:
        super().__init__()
        self.operator = operator

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        result: Tensor = self.operator(x, y)
        return result.relu()


#: Call an artifact of each target with x and y, after HEAD.
CALLS = {
    "python": "import tvm_travel_python\nout = tvm_travel_python.FUNCTIONS[NAME](x, y)",
    "jax": "import tvm_travel_jax\nout = tvm_travel_jax.FUNCTIONS[NAME](x, y)",
    "tvm_ffi": "import tvm_travel_tvm_ffi\nout = tvm_travel_tvm_ffi.FUNCTIONS[NAME](x, y)",
    "onnxruntime": "import run\n(out,) = run.load().run(None, {'x': x, 'y': y})",
    "aotinductor": "import opsmith, torch\n"
    "out = opsmith.load('.')(torch.from_numpy(x), torch.from_numpy(y))",
}
HEAD = """
import sys
import numpy as np
x, y = np.arange(4, dtype=np.float32), np.full(4, 2, np.float32)
def loaded():
    lines = open("/proc/self/maps").read().splitlines()
    files = {line.split()[-1] for line in lines}
    return sorted(file for file in files if file.endswith(("/libtvm_ffi.so", "/moved.so")))
"""
TAIL = "assert (np.asarray(out) == 3 * x).all(), out"
WITHOUT = "sys.modules['tvm_ffi'] = None"


def run(script: str, folder: Path) -> str:
    """Return what a script prints that Python runs in a folder."""
    return subprocess.run(
        [sys.executable, "-c", script],
        cwd=folder,
        env={**os.environ, "JAX_PLATFORMS": "cpu"},
        capture_output=True,
        text=True,
        check=False,
    ).stdout


@pytest.mark.parametrize("target", CALLS)
def test_an_artifact_that_was_moved_runs(target: str, module: Path, tmp_path: Path) -> None:
    original = Path(shutil.copyfile(module, tmp_path / "moved.so"))
    operator = declare(f"to_{target}", original)
    x = torch.arange(4.0)
    of_model = target in ("onnxruntime", "aotinductor")
    source = (Model(operator), (x, x)) if of_model else (operator,)
    artifact = targets.export(*source, target=target, out=tmp_path / "artifact", say=None)
    brought = {Path(name).name for name in artifact.manifest.files}
    assert {"moved.so", "libtvm_ffi.so"} <= brought
    original.unlink()
    folder = artifact.folder.rename(tmp_path / "elsewhere")
    lines = [HEAD, f"NAME = '{operator.name}'", CALLS[target], TAIL, "print(*loaded(), sep=';')"]
    if target != "tvm_ffi":  # whose package imports it
        lines.insert(1, WITHOUT)
    printed = run("\n".join(lines), folder).strip().split(";")
    found = sorted(map(Path, printed), key=lambda path: path.name)
    assert [path.name for path in found] == ["libtvm_ffi.so", "moved.so"], printed
    assert found[1].is_relative_to(folder)
    assert found[0].is_relative_to(folder) == (target != "tvm_ffi")


def test_a_python_with_tvm_ffi_has_one_library_of_it(module: Path, tmp_path: Path) -> None:
    operator = declare("beside_another", module)
    artifact = opsmith.export(operator, target="python", out=tmp_path / "artifact", say=None)
    # A second library would end the process where tvm_ffi is imported.
    script = f"""{HEAD}
NAME = '{operator.name}'
{CALLS["python"]}
assert "tvm_ffi" not in sys.modules
import tvm_ffi
try:
    tvm_ffi.load_module("{module}").scaled(1)
except TypeError as error:
    print(str(error).partition(":")[0])
{CALLS["python"]}
{TAIL}
print(*[path for path in loaded() if path.endswith("libtvm_ffi.so")])
"""
    own = Path(tvm_ffi.__file__).parent / "lib" / "libtvm_ffi.so"
    assert run(script, artifact.folder) == (f"Mismatched number of arguments when calling\n{own}\n")


def test_two_modules_of_one_name_are_refused(module: Path, tmp_path: Path) -> None:
    first = Path(shutil.copyfile(module, tmp_path / "same.so"))
    (tmp_path / "other").mkdir()
    second = tmp_path / "other" / "same.so"
    second.write_bytes(module.read_bytes() + b"\0")
    (tmp_path / "artifact").mkdir()
    both = [declare("one", first), declare("two", second)]
    sources = [operator.kernels["cpu"].source for operator in both]
    with pytest.raises(ExportError) as caught:
        copy_needed(sources, tmp_path / "artifact")
    assert str(caught.value) == (
        f"tvm_travel::two (cpu): {second} has to lie beside the kernel's library, where another "
        "same.so lies already. Rename one of the two."
    )
