"""One declaration of a PyTorch operator, taken to every runtime and proved to agree everywhere.

Names of this package are imported on first use: the command line, which is part of the package,
works without PyTorch, and starts the processes of a check while PyTorch is being imported.
"""

from __future__ import annotations

import importlib
import sys

__version__ = "0.1.0"

#: The modules that define the public names; `__init__.pyi` tells type checkers the same.
_HOMES = {
    name: module
    for module, names in {
        "errors": [
            *("ArgumentError", "ArtifactError", "BuildError", "CheckError", "DeclarationError"),
            *("DifferentiationError", "ExportError", "FaultError", "FormError", "LoadError"),
            *("MissingDependencyError", "OpsmithError", "OptionError", "OutOfBoundsError"),
            *("StorageError", "UnknownCheckError", "UnknownTargetError"),
        ],
        "kernels.languages.inline": ["cpp", "cuda"],
        "operators": ["Operator", "op"],
        "operators.adoption.adopt": ["adopt"],
        "operators.core.author_rules": ["Cost"],
        "operators.defined": ["DefinedOperator"],
        "operators.dispatch.variants": ["autotune"],
        "operators.emulation": ["emulate"],
        "philox": ["Philox"],
        "signature": [
            *("Between", "DtypeVar", "Extent", "Index", "NonDifferentiable"),
            *("Positive", "Selects", "Sorted", "Starts", "Total", "Unspecified"),
        ],
        "targets": ["LoadedModel", "LoadedOperators", "export", "load"],
        "targets.onnx.translation_table": ["onnx_translations"],
    }.items()
    for name in names
}
__all__ = sorted(_HOMES)
_PACKAGES = ("errors", "kernels", "operators", "philox", "signature", "targets")


def elsewhere() -> str:
    """Return the sentence that refuses systems other than Linux."""
    return (
        f"opsmith works on Linux, and this is {sys.platform}. On Windows use WSL 2, on macOS a "
        "Linux container or virtual machine"
    )


def __getattr__(name: str) -> object:
    if name in _PACKAGES:
        return importlib.import_module(f"opsmith.{name}")
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if sys.platform != "linux":
        raise ImportError(f"opsmith.{name}: {elsewhere()}")
    from opsmith.system.products import import_product

    found = getattr(import_product(f"opsmith.{_HOMES[name]}", f"opsmith.{name}"), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, *_PACKAGES})
