"""Three operators of one source with TORCH_LIBRARY blocks, in one model."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch
from aoti_models import export
from jaxtyping import Float32
from torch import Tensor, nn

import opsmith
from opsmith.errors import ExportError
from opsmith.kernels import Recipe
from opsmith.targets.aotinductor.libraries import refuse_python

SOURCE = Path(__file__).parent / "sources" / "extension.cpp"


@opsmith.op("aoti_extension::mymuladd", autograd="reference")
def mymuladd(a: Float32[Tensor, "*n"], b: Float32[Tensor, "*n"], c: float) -> Float32[Tensor, "*n"]:
    """`a * b + c`."""
    return a * b + c


@opsmith.op("aoti_extension::mymul", autograd="reference")
def mymul(a: Float32[Tensor, "*n"], b: Float32[Tensor, "*n"]) -> Float32[Tensor, "*n"]:
    """`a * b`."""
    return a * b


@opsmith.op("aoti_extension::myadd_out", mutates_args=("out",))
def myadd_out(
    a: Float32[Tensor, "*n"], b: Float32[Tensor, "*n"], out: Float32[Tensor, "*n"]
) -> None:
    """Write `a + b` into `out`."""
    out.copy_(a + b)


for operator in (mymuladd, mymul, myadd_out):
    operator.register_kernel("cpu", source=SOURCE, api="torch", flags=("-O0",))


class All(nn.Module):
    """Calls the three."""

    def forward(self, a: Tensor, b: Tensor) -> Tensor:
        out = torch.empty_like(a)
        myadd_out(mymuladd(a, b, 0.5), mymul(a, b), out)
        return out


PLAIN = """
import sys, torch, opsmith
loaded = opsmith.load(sys.argv[1])
again = opsmith.load(sys.argv[1])
a = torch.tensor([1.0, 2.0])
print(loaded(a, a).tolist(), again(a, a).tolist())
try:
    torch.ops.aoti_extension.mymul(a, a[:1])
except RuntimeError as error:
    print(str(error).splitlines()[0])
"""


# Others state most: test_foreign_libraries.py::test_another_schema_is_refused exports a library of
# this kind and loads it, and test_self_registering.py calls such kernels.
@pytest.mark.long
def test_operators_of_one_source_run_in_one_artifact(tmp_path: Path) -> None:
    a, b = torch.tensor([1.0, 2.0]), torch.tensor([3.0, 4.0])
    artifact = export(All(), (a, b), tmp_path / "out")
    assert all("registers itself with PyTorch" in use.note for use in artifact.manifest.operators)
    # The source is there once, for all three, and a gate before each.
    entries = artifact.manifest.details["libraries"]
    (source,) = (entry for entry in entries if len(entry["defines"]) == 3)
    assert sorted(source["defines"]) == sorted(o.name for o in (mymuladd, mymul, myadd_out))
    assert len(entries) == 4
    before = [o.kernels["cpu"].calls for o in (mymuladd, mymul, myadd_out)]
    assert opsmith.load(artifact.folder)(a, b).tolist() == [6.5, 16.5]
    after = [o.kernels["cpu"].calls for o in (mymuladd, mymul, myadd_out)]
    assert after == [count + 1 for count in before]
    command = [sys.executable, "-c", PLAIN, artifact.folder]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.stdout.splitlines() == [
        "[2.5, 8.5] [2.5, 8.5]",
        "aoti_extension::mymul: argument 'b' does not fit Float32[Tensor, \"*n\"]: dimensions "
        "from 0 (*n) are (1,), expected (2,).",
    ], done.stderr


MODULE = """
#include <Python.h>
WORDS PyInit_extension() { return PyModule_New("extension"); }
"""


@pytest.mark.slow
def test_a_module_that_python_alone_can_import_is_refused_and_one_that_nothing_calls_is_left_out(
    tmp_path: Path,
) -> None:
    source = tmp_path / "extension.cpp"
    source.write_text(MODULE.replace("WORDS", 'extern "C" PyObject*'))
    refuse_python(Recipe("left_out", [source], torch="full").build(), "ns::op (cpu)")
    source.write_text(MODULE.replace("WORDS", "PyMODINIT_FUNC"))
    with pytest.raises(ExportError) as caught:
        refuse_python(Recipe("exported", [source], torch="full").build(), "ns::op (cpu)")
    assert str(caught.value) == (
        "ns::op (cpu): the kernel needs Python (PyModule_New), and an AOTInductor artifact runs "
        "without. Leave out what is called from Python (PYBIND11_MODULE, PyMODINIT_FUNC): "
        "TORCH_LIBRARY is enough to call the operator from there as well."
    )
