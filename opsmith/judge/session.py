"""The judge's end of the candidate's process."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from opsmith.checks.cases.failure import Failure
from opsmith.checks.cases.reference_call import run_reference
from opsmith.checks.isolation.kernel_client import Caller
from opsmith.checks.isolation.launch import python
from opsmith.errors import ArgumentError
from opsmith.operators import Operator
from opsmith.operators.core.arguments import DTYPES, dtype_name, flatten, output_names
from opsmith.operators.core.validation import Validator, checked_results

#: What a candidate's process knows of the environment: what compilers and libraries need.
ENVIRONMENT = (
    "PATH",
    "HOME",
    "LANG",
    "LC_ALL",
    "LD_LIBRARY_PATH",
    "CC",
    "CXX",
    "CXXFLAGS",
    "LDFLAGS",
    "CUDA_HOME",
    "OMP_NUM_THREADS",
)
#: After it hung once, a call gets this part of the time, and not less than a second.
_LESS = 0.1


class Session(Caller):
    """A candidate's process, started again where it ended.

    Args:
        spec: the file with the declarations.
        candidate: the file with the kernels.
        time_limit: the seconds that a call may take.
        place: a folder for what it builds, by whose name nobody knows what it is for.
    """

    who, garbled = "the candidate", "OPS-JUDGE-ANSWER"
    watches_arguments = True
    #: What runs in the process.
    module = "opsmith.judge.candidate"

    def __init__(self, spec: Path, candidate: Path, time_limit: float, place: Path) -> None:
        # A cache of its own: what it leaves there, nobody else loads.
        environment = {name: os.environ[name] for name in ENVIRONMENT if name in os.environ}
        super().__init__(
            python(self.module, environment | {"OPSMITH_CACHE": str(place / "cache")}),
            time_limit,
            setup={"spec": str(spec), "candidate": str(candidate)},
        )
        self.spec, self.candidate, self.place = spec, candidate, place

    def kernels(self) -> dict[str, tuple[str, ...] | None]:
        """Have the candidate imported.

        Returns:
            For each operator that it registers a kernel for the dtypes of that; `None` for all.

        Raises:
            Failure: it cannot be imported.
        """
        try:
            operators = self.load().get("operators")
        except Failure as failure:
            how = str(failure)
            if not how.startswith("raised "):
                raise
            raise Failure(f"importing the candidate {how}", code="OPS-JUDGE-IMPORT") from failure
        found: dict[str, tuple[str, ...] | None] = {}
        for name, dtypes in operators.items() if isinstance(operators, dict) else ():
            if isinstance(dtypes, list):
                found[name] = tuple(dtype for dtype in DTYPES if dtype in dtypes)
            else:
                found[name] = None
        return found

    def _hung(self, limit: float) -> Failure:
        self._time_limit = min(self._time_limit, max(1.0, _LESS * self._time_limit))
        return super()._hung(limit)

    def _require_declared(
        self, operator: Operator, arguments: Mapping[str, Any], returned: Any
    ) -> None:
        """Compare shapes and dtypes with the declaration and the reference."""
        signature = operator.signature
        try:
            valid = Validator(signature)(dict(arguments))
            checked_results(signature, arguments, valid, returned, "the candidate's kernel")
        except ArgumentError as error:
            raise Failure(str(error), code="OPS-RESULT-DECLARED") from error
        try:
            right, expected = run_reference(operator, arguments)
        except Exception:
            return  # not in this dtype; what the declaration says was compared
        names = output_names(signature, right)
        for name, tensor, other in zip(
            names, flatten(signature, returned, arguments), expected, strict=False
        ):
            if tensor.dtype != other.dtype:
                raise Failure(
                    f"{name} is {dtype_name(tensor.dtype)}, expected {dtype_name(other.dtype)}",
                    code="OPS-RESULT-DECLARED",
                )
