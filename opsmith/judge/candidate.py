"""The candidate's process: import the spec, then the candidate, and call its kernels.

The judge starts it as ``python -m opsmith.judge.candidate FD FOLDER``.
"""

from __future__ import annotations

from typing import Any

from opsmith.checks.isolation.kernel_server import run
from opsmith.kernels import HOST
from opsmith.operators import Operator
from opsmith.operators.core import registry
from opsmith.sources.importing import import_module, import_operators


class _Candidate:
    """The operators of a spec, with the kernels of a candidate."""

    def load(self, request: dict[str, Any]) -> dict[str, Any]:
        """Import the declarations, then the kernels; return the operators that got kernels."""
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
        """Return the operator with this name."""
        return registry.get(name)


if __name__ == "__main__":
    run(_Candidate())
