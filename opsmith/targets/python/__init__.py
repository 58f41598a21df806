"""Target ``python``: operators as functions of a Python module, for any library with DLPack."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from opsmith.operators import Operator
from opsmith.targets.exporting.artifact import Artifact
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
        from opsmith.targets.python.runner import PythonFunctions

        return PythonFunctions(artifact)

    def proofs(self) -> Sequence[Route]:
        """Return the routes through Python modules."""
        from opsmith.targets.python.proofs import PROOFS

        return PROOFS


TARGET = PythonTarget()
