"""One declaration of a PyTorch operator, taken to every runtime and proved to agree everywhere.

Names of this package are imported on first use: the command line, which is part of the package,
works without PyTorch, and starts the processes of a check while PyTorch is being imported.
"""

from __future__ import annotations

import importlib
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from opsmith.errors import (
        ArgumentError,
        ArtifactError,
        BuildError,
        CheckError,
        DeclarationError,
        DifferentiationError,
        ExportError,
        FaultError,
        FormError,
        LoadError,
        MissingDependencyError,
        OpsmithError,
        OptionError,
        OutOfBoundsError,
        StorageError,
        UnknownCheckError,
        UnknownTargetError,
    )
    from opsmith.kernels.languages.inline import cpp, cuda
    from opsmith.monitoring import Difference, Monitor, monitor
    from opsmith.operators import Operator, op
    from opsmith.operators.adoption.adopt import adopt
    from opsmith.operators.classes import CustomClass, method
    from opsmith.operators.classes.custom_class import custom_class
    from opsmith.operators.core.cost import Cost
    from opsmith.operators.defined import DefinedOperator
    from opsmith.operators.emulation import emulate
    from opsmith.philox import Philox
    from opsmith.signature import (
        Between,
        DtypeVar,
        Extent,
        Index,
        NonDifferentiable,
        Positive,
        Selects,
        Sorted,
        Starts,
        Total,
        Unspecified,
    )
    from opsmith.targets import LoadedModel, LoadedOperators, export, load
    from opsmith.targets.onnx.translation_table import onnx_translations

__version__ = "0.1.0"

__all__ = [
    "ArgumentError",
    "ArtifactError",
    "Between",
    "BuildError",
    "CheckError",
    "Cost",
    "CustomClass",
    "DeclarationError",
    "DefinedOperator",
    "Difference",
    "DifferentiationError",
    "DtypeVar",
    "ExportError",
    "Extent",
    "FaultError",
    "FormError",
    "Index",
    "LoadError",
    "LoadedModel",
    "LoadedOperators",
    "MissingDependencyError",
    "Monitor",
    "NonDifferentiable",
    "Operator",
    "OpsmithError",
    "OptionError",
    "OutOfBoundsError",
    "Philox",
    "Positive",
    "Selects",
    "Sorted",
    "Starts",
    "StorageError",
    "Total",
    "UnknownCheckError",
    "UnknownTargetError",
    "Unspecified",
    "adopt",
    "cpp",
    "cuda",
    "custom_class",
    "emulate",
    "export",
    "load",
    "method",
    "monitor",
    "onnx_translations",
    "op",
]

#: The modules that define these names.
_HOMES = {
    name: module
    for module, names in {
        "errors": [name for name in __all__ if name.endswith("Error")],
        "kernels.languages.inline": ["cpp", "cuda"],
        "operators": ["Operator", "op"],
        "operators.adoption.adopt": ["adopt"],
        "operators.classes": ["CustomClass", "custom_class", "method"],
        "operators.core.cost": ["Cost"],
        "operators.defined": ["DefinedOperator"],
        "operators.emulation": ["emulate"],
        "philox": ["Philox"],
        "signature": [
            *("Between", "DtypeVar", "Extent", "Index", "NonDifferentiable"),
            *("Positive", "Selects", "Sorted", "Starts", "Total", "Unspecified"),
        ],
        "targets": ["LoadedModel", "LoadedOperators", "export", "load"],
        "targets.onnx.translation_table": ["onnx_translations"],
        "monitoring": ["Difference", "Monitor", "monitor"],
    }.items()
    for name in names
}
_PACKAGES = ("errors", "kernels", "operators", "philox", "signature", "targets", "monitoring")


def elsewhere() -> str:
    """Return the sentence that refuses systems other than Linux."""
    return (
        f"opsmith works on Linux, and this is {sys.platform}. On Windows use WSL 2, on macOS a "
        "Linux container or virtual machine"
    )


def __getattr__(name: str) -> Any:
    if name in _PACKAGES:
        return importlib.import_module(f"opsmith.{name}")
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if sys.platform != "linux":
        raise ImportError(f"opsmith.{name}: {elsewhere()}")
    found = getattr(importlib.import_module(f"opsmith.{_HOMES[name]}"), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, *_PACKAGES})
