"""A target that writes a Python package of operators."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from pathlib import Path

from opsmith.operators import Operator
from opsmith.targets.exporting.artifact import Artifact
from opsmith.targets.exporting.protocol import OperatorRunner, OperatorTarget, Outcome, Route
from opsmith.untyped import Arguments, Untyped


class PackageTarget(OperatorTarget):
    """A target in whose folder ``export.py`` has `export` and `load`, and ``proofs.py`` `PROOFS`.

    They are imported when they are asked for, so that listing the targets is quick.
    """

    def export_operators(
        self, operators: Sequence[Operator], folder: Path, options: Arguments
    ) -> Outcome:
        """Write the package."""
        outcome: Outcome = self._file("export").export(operators, folder, options)
        return outcome

    def load_operators(self, artifact: Artifact) -> OperatorRunner:
        """Import the package."""
        runner: OperatorRunner = self._file("export").load(artifact)
        return runner

    def proofs(self) -> Sequence[Route]:
        """Return the routes through the package."""
        routes: Sequence[Route] = self._file("proofs").PROOFS
        return routes

    def _file(self, name: str) -> Untyped:
        return importlib.import_module(f"{type(self).__module__}.{name}")
