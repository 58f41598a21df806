"""The judge's connection to the candidate's process."""

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

#: Environment variables passed to a candidate's process: those that compilers and libraries need.
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
#: After a call hung, further calls get this fraction of the time limit, but at least a second.
_LESS = 0.1


class Session(Caller):
    """A candidate's process, which is started again if it ends.

    Args:
        spec: the file with the declarations.
        candidate: the file with the kernels.
        time_limit: the seconds that a call may take.
        place: a folder to build in, whose name does not reveal its purpose.
    """

    who, garbled = "the candidate", "OPS-JUDGE-ANSWER"
    watches_arguments = True
    #: The module that runs in the process.
    module = "opsmith.judge.candidate"

    def __init__(self, spec: Path, candidate: Path, time_limit: float, place: Path) -> None:
        # Use a separate cache, so that no other process loads what the candidate leaves there.
        environment = {name: os.environ[name] for name in ENVIRONMENT if name in os.environ}
        super().__init__(
            python(self.module, environment | {"OPSMITH_CACHE": str(place / "cache")}),
            time_limit,
            setup={"spec": str(spec), "candidate": str(candidate)},
        )
        self.spec, self.candidate, self.place = spec, candidate, place

    def kernels(self) -> dict[str, tuple[str, ...] | None]:
        """Have the process import the candidate.

        Returns:
            The operators that the candidate registers kernels for, with the dtypes of each kernel;
            `None` for all dtypes.

        Raises:
            Failure: the candidate cannot be imported.
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
            return  # the reference does not run in this dtype; only the declaration was compared
        names = output_names(signature, right)
        for name, tensor, other in zip(
            names, flatten(signature, returned, arguments), expected, strict=False
        ):
            if tensor.dtype != other.dtype:
                raise Failure(
                    f"{name} is {dtype_name(tensor.dtype)}, expected {dtype_name(other.dtype)}",
                    code="OPS-RESULT-DECLARED",
                )
