"""Choose the kernels whose libraries a wheel contains, and explain why it lacks the others."""

from __future__ import annotations

from opsmith.errors import DeclarationError, ExportError, MissingDependencyError
from opsmith.kernels import HOST, KernelSource, get_device
from opsmith.kernels.languages.triton import require_triton
from opsmith.operators.classes import all_classes
from opsmith.operators.core.operator import Kernel
from opsmith.operators.defined import DefinedOperator
from opsmith.wheels.platforms import Platform, compiling_for
from opsmith.wheels.project import Project


def choose(found: Project, kind: Platform) -> tuple[list[KernelSource], list[str]]:
    """Return the kernels whose libraries a wheel contains, and a sentence on each other kernel.

    Args:
        found: the package.
        kind: the platform.

    Raises:
        ExportError: the package declares an object that needs opsmith wherever it is imported.
    """
    for declared in all_classes():
        if f"{declared.__module__}.".startswith(f"{found.module}."):
            raise ExportError(
                f"{declared.name}: is a custom class, whose library binds to one PyTorch, so no "
                f"wheel carries it. Keep it in a module that {found.package} does not import, "
                "outside the package."
            )
    carried, left_out = [], []
    for operator in found.operators:
        if not isinstance(operator, DefinedOperator):
            raise ExportError(
                f"{operator.name}: is adopted, so the library that defines it is not the "
                "package's to carry. Declare it with opsmith.op to ship it."
            )
        for device, kernel in operator.kernels.items():
            why = _obstacle(operator.name, kernel, kind)
            if why:
                left_out.append(f"{operator.name} ({device}): {why}")
            elif kernel.entry is not None:
                carried.append(kernel.entry)
    return carried, left_out


def _obstacle(name: str, kernel: Kernel, kind: Platform) -> str:
    """Return why a wheel lacks a kernel's library; empty if it has one or none is needed."""
    if kernel.dissolves:
        why = _not_ahead_of_time(kernel, kind).removeprefix(f"{name} ({kernel.device}): ")
        return why and f"its Python comes along, and Triton compiles it where it is called: {why}"
    if kernel.source is None:
        return ""
    if kernel.entry is None:
        return (
            'left out, since api="torch" binds to one PyTorch; its source comes along, and is '
            "compiled where opsmith is installed"
        )
    if kernel.device == HOST:
        return ""
    if not get_device(kernel.device, "").in_every_library:
        return "left out, since wheels carry kernels for the CPU and CUDA; its source comes along"
    if kind.target:
        return (
            "left out, since nvcc calls this machine's compiler, which only --platform native "
            "uses; its source comes along"
        )
    try:
        with compiling_for(kind, kind.levels[0]):
            kernel.entry.language.require(kernel.entry)
    except MissingDependencyError as error:
        reason = str(error).removeprefix(f"{kernel.entry.what}: ")
        return f"left out, its source comes along: it {reason}"
    return ""


def _not_ahead_of_time(kernel: Kernel, kind: Platform) -> str:
    """Return why Triton cannot compile a kernel ahead of time here; empty if it can."""
    try:
        if kernel.entry is None:
            return "a function launches it"
        require_triton(kernel.entry.what)  # fail before anything is built for the platform
        with compiling_for(kind, kind.levels[0]):
            kernel.entry.build()
    except (DeclarationError, MissingDependencyError) as error:
        return str(error)
    return ""
