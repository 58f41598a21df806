"""Target ``jax``: operators as JAX functions, in a Python package that needs no PyTorch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from opsmith.operators import Operator
from opsmith.targets.exporting.artifact import Artifact
from opsmith.targets.exporting.protocol import (
    TRACING,
    OperatorRunner,
    OperatorTarget,
    Option,
    Outcome,
    Route,
)


class JaxTarget(OperatorTarget):
    """JAX on the CPU."""

    name = "jax"
    title = "JAX"
    options = (Option("package", "the name of the Python package; by default <namespace>_jax"),)
    packages = ("jax", "jaxlib")
    prepares = (*TRACING, "jax")
    install = 'pip install "opsmith[jax]"'
    page = "docs/reference/jax.md"

    def export_operators(
        self, operators: Sequence[Operator], folder: Path, options: Mapping[str, Any]
    ) -> Outcome:
        """Write the Python package."""
        from opsmith.targets.jax.export import export

        return export(operators, folder, options)

    def load_operators(self, artifact: Artifact) -> OperatorRunner:
        """Import the package."""
        from opsmith.targets.jax.runner import JaxFunctions

        return JaxFunctions(artifact)

    def proofs(self) -> Sequence[Route]:
        """Return the routes through JAX."""
        from opsmith.targets.jax.proofs import PROOFS

        return PROOFS


TARGET = JaxTarget()
