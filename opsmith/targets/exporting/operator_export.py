"""Find the operators to export and their kernels, and compare the runtime with PyTorch."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from types import ModuleType

import torch
from torch import Tensor

from opsmith.errors import ExportError
from opsmith.kernels import HOST, KernelSource
from opsmith.operators import Operator
from opsmith.operators.core.arguments import case_dtype, flatten, map_tensors, output_names
from opsmith.operators.core.operator import Kernel
from opsmith.signature.dtype_variables import parts
from opsmith.sources.importing import declared_by, import_all
from opsmith.system.files import digest
from opsmith.targets.exporting.artifact import Agreement
from opsmith.targets.exporting.protocol import OperatorRunner
from opsmith.targets.exporting.verification import largest_difference
from opsmith.untyped import Arguments, Value

#: Number of registered cases to compare per operator. A few keep the export quick; `opsmith check`
#: runs all.
_MOST = 8


def operators_of(source: object) -> list[Operator]:
    """Return the operators that `source` names, without duplicates.

    Args:
        source: an operator, several, or the Python module or file that declares them;
            ``"FILE.py::OPERATOR"`` names one operator of a file.
    """
    if isinstance(source, Operator):
        return [source]
    if isinstance(source, str | Path):
        return import_all([str(source)])
    if isinstance(source, ModuleType):
        found = declared_by(source)
        if not found:
            raise ExportError(f"the module {source.__name__!r} declares no operator")
        return list(found)
    if isinstance(source, Sequence) and source:
        for item in source:
            if not isinstance(item, Operator):
                raise ExportError(f"a list of operators holds {_shown(item)}")
        return list(dict.fromkeys(source))
    raise ExportError(
        f"{_shown(source)} cannot be exported: expected a torch.nn.Module, an ExportedProgram, an "
        "operator, a list of operators, or a Python module or file that declares operators"
    )


def obstacle(operator: Operator, kernel: Kernel | None, runtime: str) -> str | None:
    """Return why a runtime without PyTorch cannot call the operator's kernel, or `None` if it can.

    Args:
        kernel: its kernel; `None` if it is missing.
        runtime: name of the runtime, to begin a sentence.
    """
    name = operator.signature.name
    if kernel is None or kernel.source is None:
        return (
            f"{runtime} calls a C++ kernel, and the operator has none for the CPU. Add one: "
            f'{name}.register_kernel("cpu", source="{new_source(operator, HOST, ".cpp")}").'
        )
    if kernel.device != HOST:
        return f"{runtime} calls kernels for the CPU, and this one is for {kernel.device}."
    if kernel.entry is None:
        return (
            f"its CPU kernel {kernel.where} is written against PyTorch "
            f'(api="{kernel.source.api}"), which {runtime} does not have. Write it against '
            "<opsmith/kernel.h>."
        )
    return None


def new_source(operator: Operator, device: str, suffix: str) -> str:
    """Return a file name for a new kernel that none of the operator's kernels uses."""
    name = operator.signature.name
    taken = {one.source.path.name for one in operator.kernels.values() if one.source is not None}
    return f"{name}_{device}{suffix}" if f"{name}{suffix}" in taken else f"{name}{suffix}"


def left_out(kernel: Kernel | None) -> str:
    """Explain that a runtime without PyTorch runs the reference instead of the kernel.

    Returns:
        A clause without a full stop; empty if there is no kernel, or if the runtime can run it.
    """
    if kernel is None or kernel.device == "reference" or kernel.entry is not None:
        return ""
    why = "a Python function"
    if kernel.source is not None:
        why = f'written against PyTorch (api="{kernel.source.api}")'
    return f"the {kernel.device} kernel does not run there, as it is {why}"


def kernel_of(
    operator: Operator, why_not: Callable[[Operator, Kernel | None], str | None]
) -> KernelSource:
    """Return the kernel by which a runtime calls an operator.

    Args:
        why_not: returns why the runtime cannot call the given kernel; `None` if it can.
    """
    kernel = operator.kernels.get(HOST)
    problem = why_not(operator, kernel)
    if problem is not None:
        raise ExportError(f"{operator.name}: {problem}")
    assert kernel is not None and kernel.entry is not None
    return kernel.entry


def copy_needed(sources: Iterable[KernelSource], folder: Path) -> None:
    """Copy what the libraries of kernels load from their own folder into that folder."""
    for source in sources:
        for path in source.language.needs_beside(source):
            place = folder / path.name
            if place.exists() and digest(place) != digest(path):
                raise ExportError(
                    f"{source.what}: {path} has to lie beside the kernel's library, where another "
                    f"{path.name} lies already. Rename one of the two."
                )
            shutil.copyfile(path, place)


def compare_operators(
    operators: Sequence[Operator], runner: OperatorRunner, title: str
) -> Agreement:
    """Call each operator in PyTorch and in `runner` on its registered cases, and compare.

    Args:
        title: the runtime's name, for messages.

    Returns:
        The largest difference found, and the operator and result that it was found in.
    """
    count, largest, output = 0, 0.0, ""
    for operator in operators:
        for arguments in _cases(operator):
            wanted, names = _call(operator, _copied(arguments))
            got = runner.run(operator.name, _copied(arguments))
            names = [f"{operator.name}: {name}" for name in names]
            difference, name = largest_difference(names, wanted, got, title)
            count += 1
            if difference >= largest:
                largest, output = difference, name
    return Agreement(count, largest, output)


def _cases(operator: Operator) -> Iterator[dict[str, object]]:
    """Yield the author's first cases, in one dtype."""
    generic = operator.signature.generic
    names = generic.names if generic is not None else ("float32",)
    name = next((name for name in names if "float32" in parts(name)), names[0])
    dtype = case_dtype(operator.signature, name)
    cases = (case for function in operator.cases for case in function(dtype, 0))
    for _, case in zip(range(_MOST), cases, strict=False):
        yield operator.arguments((), dict(case))


def _copied(arguments: Arguments) -> dict[str, Value]:
    return {name: map_tensors(value, Tensor.clone) for name, value in arguments.items()}


def _call(operator: Operator, arguments: dict[str, object]) -> tuple[list[Tensor], list[str]]:
    positional, keywords = operator.split(arguments)
    with torch.no_grad():
        returned = operator(*positional, **keywords)
    found = flatten(operator.signature, returned, arguments)
    names = output_names(operator.signature, returned, arguments)
    return found, names if len(names) == len(found) else [f"result {i}" for i in range(len(found))]


def _shown(value: object) -> str:
    return f"{value!r} ({type(value).__name__})"
