"""The candidate's process: imports the spec, then the candidate, and calls its kernels.

Started by the judge as ``python -m opsmith.judge.candidate FD FOLDER``.
"""

from __future__ import annotations

from typing import Any

from opsmith.checks.isolation.kernel_server import run
from opsmith.kernels import HOST
from opsmith.operators import Operator
from opsmith.operators.core import registry
from opsmith.operators.importing import import_module, import_operators


class _Candidate:
    """The operators of a spec, with the kernels of a candidate."""

    def load(self, request: dict[str, Any]) -> dict[str, Any]:
        """Import the declaration, then the kernels; what they are registered for."""
        operators = import_operators(request["spec"]).operators
        before = {operator.name: operator.kernels.get(HOST) for operator in operators}
        import_module(request["candidate"])
        found: dict[str, list[str] | None] = {}
        for operator in operators:
            kernel = operator.kernels.get(HOST)
            if kernel is None or kernel is before[operator.name]:
                continue
            operator.build(HOST)
            found[operator.name] = sorted(kernel.dtypes) or None
        return {"operators": found}

    def operator(self, name: str) -> Operator:
        """One of them."""
        return registry.get(name)


if __name__ == "__main__":
    run(_Candidate())
