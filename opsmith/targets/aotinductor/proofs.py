"""Define how `opsmith check` runs packages: from Python, and by the C++ program."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import torch

from opsmith.compat.torch_inductor import settings as inductor_settings
from opsmith.errors import ArtifactError
from opsmith.kernels import HOST, get_device
from opsmith.operators import Operator
from opsmith.operators.core.operator import Kernel
from opsmith.signature.dtype_variables import parts
from opsmith.signature.dtypes import FLOAT8, UNSIGNED
from opsmith.system.scratch import scratch_folder
from opsmith.targets.exporting.conformance import ModelProof
from opsmith.targets.exporting.loaded_artifact import LoadedModel


def _obstacle(operator: Operator, kernel: Kernel) -> str | None:
    if kernel.device == "reference":
        return "a package runs without Python, and the operator has only its reference, in Python"
    if kernel.source is None:
        return "a package runs without Python, and the kernel is Python"
    if kernel.source.language.needs_python(kernel.source):
        return "a package runs without Python, and the kernel's source has a PYBIND11_MODULE"
    if not get_device(kernel.device, operator.name).compiled_by_inductor():
        return f"Inductor makes no code for {kernel.device}"
    return None


#: The dtypes that `torch.save` writes in a form that PyTorch reads in Python only.
_IN_PYTHON_ONLY = {*FLOAT8, *UNSIGNED}


def _obstacle_in_cpp(operator: Operator, kernel: Kernel) -> str | None:
    if kernel.device != HOST:
        return "the C++ program reads its inputs to the CPU"
    signature = operator.signature
    tensors = [parameter.tensor_type for parameter in signature.parameters]
    tensors += [result.tensor_type for result in signature.results]
    fixed = [one.dtypes.names for one in tensors if one is not None and not one.dtypes.generic]
    chosen = [parts(dtypes) for dtypes in kernel.dtypes]
    for name in chain(*fixed, *chosen):
        if name in _IN_PYTHON_ONLY:
            return (
                f"the C++ program reads files that torch.save wrote, and PyTorch reads {name} from "
                "them in Python only"
            )
    return _obstacle(operator, kernel)


def _in_cpp(model: LoadedModel, arguments: Sequence[Any]) -> Any:
    """Run the program, copy its changed inputs back into ours, and return its results."""
    from opsmith.targets.aotinductor.runtime import build_runner

    inputs = model.flatten(arguments)
    with scratch_folder("check") as folder:
        before, results, after = (Path(folder, f"{name}.pt") for name in ("in", "out", "after"))
        torch.save([tensor.contiguous() for tensor in inputs], before)
        files: list[str | Path] = [
            model.artifact.folder,
            before,
            "--output",
            results,
            "--written",
            after,
        ]
        done = subprocess.run([build_runner(), *files], env={}, capture_output=True, text=True)
        if done.returncode != 0:
            raise ArtifactError(f"ended with {done.returncode}: {done.stderr.strip()}")
        for tensor, written in zip(inputs, torch.load(after), strict=True):
            tensor.copy_(written)
        return model.unflatten(torch.load(results))


#: Compile the code around a kernel's call in the quickest way, without vector instructions: to
#: detect them, inductor would first compile a test for each kind. The kernel itself is compiled as
#: usual.
_QUICKLY_COMPILED = {
    "cpp.vec_isa_ok": False,
    "aot_inductor.compile_wrapper_opt_level": "O0",
}


def _options(operator: Operator) -> Mapping[str, Any]:
    del operator
    settings = dict(_QUICKLY_COMPILED)
    # Line tables for profilers, which later versions of PyTorch write by default.
    if hasattr(inductor_settings().aot_inductor, "enable_line_tables"):
        settings["aot_inductor.enable_line_tables"] = False
    return {"inductor": settings}


PROOFS = (
    ModelProof(
        name="aotinductor",
        summary="an AOTInductor package gives right results",
        what="the AOTInductor package",
        timed="aotinductor",
        obstacle=_obstacle,
        options=_options,
    ),
    ModelProof(
        name="aotinductor-cpp",
        summary="the C++ program runs the package without Python",
        what="the C++ program",
        obstacle=_obstacle_in_cpp,
        options=_options,
        run=_in_cpp,
        flag="cpp",
    ),
)
