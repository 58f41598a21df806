"""Target ``python``: operators as functions of a Python module, for any library with DLPack."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from torch import Tensor

from opsmith.operators import Operator
from opsmith.operators.core.arguments import dtype_name
from opsmith.targets.exporting.artifact import Artifact
from opsmith.targets.exporting.ml_dtypes import WORDS, tensor_of
from opsmith.targets.exporting.packages.writer import PackageFunctions
from opsmith.targets.exporting.protocol import (
    OperatorRunner,
    OperatorTarget,
    Option,
    Outcome,
    Route,
)


class PythonTarget(OperatorTarget):
    """Python modules on the CPU."""

    name = "python"
    title = "Python"
    options = (
        Option("package", "the name of the Python package; by default <namespace>_python"),
        Option(
            "backend",
            'where nanobind is: "own", in the package, or "shared", in the package '
            "nanobind-backend, so that one extension serves every Python from 3.10",
            default="own",
            choices=("own", "shared"),
        ),
    )
    packages = ("nanobind",)
    install = 'pip install "opsmith[python]"'
    page = "docs/reference/python.md"

    def export_operators(
        self, operators: Sequence[Operator], folder: Path, options: Mapping[str, Any]
    ) -> Outcome:
        """Write the Python package."""
        from opsmith.targets.python.export import export

        return export(operators, folder, options)

    def load_operators(self, artifact: Artifact) -> OperatorRunner:
        """Import the package."""
        return _PythonFunctions(artifact)

    def proofs(self) -> Sequence[Route]:
        """Return the routes through Python modules."""
        from opsmith.targets.python.proofs import PROOFS

        return PROOFS


class _PythonFunctions(PackageFunctions):
    """The functions of an artifact."""

    def __init__(self, artifact: Artifact) -> None:
        super().__init__(artifact, "errors")
        self._written: Mapping[str, Sequence[str]] = artifact.manifest.details["written"]

    def run(self, name: str, arguments: Mapping[str, Any]) -> Sequence[Tensor]:
        """Call a function with NumPy arrays, and return its results as tensors."""
        given = {key: _to_numpy(value) for key, value in arguments.items()}
        returned = self.functions[name](**given)
        many = returned if isinstance(returned, tuple) else (returned,)
        results = [] if returned is None else [to_torch(value) for value in many]
        written = [item for key in self._written[name] for item in _each_array(given[key])]
        return results + [to_torch(value) for value in written]


def _each_array(value: Any) -> list[Any]:
    """Return the arrays of an argument: none for `None`, all of a list."""
    if value is None:
        return []
    return value if isinstance(value, list) else [value]


def _to_numpy(value: Any) -> Any:
    """Convert tensors, also in lists, to arrays that share their memory."""
    if isinstance(value, list | tuple):
        return [_to_numpy(item) for item in value]
    if not isinstance(value, Tensor):
        return value
    value = value.detach().resolve_conj().resolve_neg()
    # NumPy lacks these dtypes, so PyTorch's own tensors are passed.
    return value if dtype_name(value.dtype) in WORDS else value.numpy()


def to_torch(value: Any) -> Tensor:
    """Return a result as a tensor."""
    return value if isinstance(value, Tensor) else tensor_of(value)


TARGET = PythonTarget()
