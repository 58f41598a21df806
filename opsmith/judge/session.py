"""The judge's connection to the candidate's process."""

from __future__ import annotations

import secrets
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from opsmith.checks.cases.failure import Failure
from opsmith.checks.cases.reference_call import run_reference
from opsmith.checks.isolation.kernel_client import Caller
from opsmith.checks.isolation.prestart import CANDIDATE
from opsmith.errors import ArgumentError
from opsmith.judge.snapshot import Snapshot
from opsmith.operators import Operator
from opsmith.operators.core.arguments import DTYPES, dtype_name, flatten, output_names
from opsmith.operators.core.validation import Validator, checked_results
from opsmith.operators.dispatch.gates import gate_libraries
from opsmith.system.processes.launch import python
from opsmith.system.processes.sandbox.policy import Box, can_be_covered, most_memory, passed_on
from opsmith.system.processes.supervisor_client import EndError
from opsmith.system.scratch import make_plain


@dataclass(frozen=True)
class Limits:
    """The limits of a run.

    Attributes:
        call: the seconds that a call may take.
        run: the seconds that all calls may take together, from now on.
        namespaces: whether the candidate's processes run in the machine's namespaces.
        beside: number of candidates that share the machine's memory.
    """

    call: float
    run: float = 3600.0
    namespaces: bool = True
    beside: int = 1
    begun: float = field(default_factory=time.monotonic)

    def left(self) -> float:
        """Return the seconds that are left of the run."""
        return self.begun + self.run - time.monotonic()


#: Half of the smallest id of a process that the candidate gets.
_FEWEST_IDS = 2000
#: After a call hung, further calls get this fraction of the time limit, but at least a second.
_LESS = 0.1


class Placement:
    """Holds where a candidate's processes run: the files they see, their sandbox and limits.

    Args:
        spec: the files with the declarations.
        candidate: the files with the kernels.
    """

    def __init__(self, spec: Snapshot, candidate: Snapshot, limits: Limits) -> None:
        self.spec, self.candidate, self.limits = spec, candidate, limits
        self._gates = gate_libraries.folders()

    def box(self, folder: Path, odd: int = 0) -> Box:
        """Return the sandbox of the candidate's processes.

        Args:
            folder: the folder for their files.
            odd: whether the last id of a process before theirs is odd: some kernels are wrong in
                processes with odd or even ids only.
        """
        placed = {self._root(files): files.root for files in (self.spec, self.candidate)}
        # Else, each process of a compiled candidate compiles the gates anew.
        placed |= {gates: gates for gates in self._gates}
        last_id = 2 * (_FEWEST_IDS + secrets.randbelow(_FEWEST_IDS)) + odd
        memory = most_memory() // self.limits.beside
        return Box(self.limits.namespaces, folder, placed, memory, last_id)

    def _root(self, files: Snapshot) -> Path:
        """Return the folder where the candidate's processes find the files of a snapshot.

        In the sandbox, copies take the places of the originals.
        """
        # Files that came from another machine may have no place here.
        covered = self.limits.namespaces and files.original.is_dir()
        return files.original if covered and can_be_covered(files.original) else files.root

    def place_of(self, files: Snapshot) -> str:
        """Return the path by which the candidate's processes find the file of a snapshot."""
        return str(self._root(files) / files.file.relative_to(files.root))

    def environment(self, folder: Path) -> dict[str, str]:
        """Return the environment variables of the candidate's processes."""
        variables = passed_on()
        if not self.limits.namespaces:
            # Use a separate cache, so that no other process loads what the candidate leaves there.
            # Other programs read this variable too, so that it is no mark of a judge.
            variables["XDG_CACHE_HOME"] = str(folder / "cache")
        return variables

    def within(self, limit: float) -> float:
        """Return a time limit that ends with the whole run."""
        left = self.limits.left()
        if left <= 0:
            failure = Failure(
                f"the whole run took longer than {self.limits.run:.0f} s", code="OPS-JUDGE-LIMIT"
            )
            failure.final = True
            raise failure
        return min(limit, left)


def after_hang(limit: float) -> float:
    """Return the time limit of calls that follow a call that exceeded `limit`."""
    return min(limit, max(1.0, _LESS * limit))


class Session(Caller):
    """A candidate's process, which is started again if it ends.

    Args:
        place: where it runs.
    """

    who, garbled = "the candidate", "OPS-JUDGE-ANSWER"
    watches_arguments = True

    def __init__(self, place: Placement) -> None:
        self._place = place
        super().__init__(
            python(CANDIDATE, place.environment, place.box),
            place.limits.call,
            setup={
                "spec": place.place_of(place.spec),
                "candidate": place.place_of(place.candidate),
            },
        )

    def new_folder(self) -> Path:
        """Create the folder for the processes' files; its name does not tell their purpose."""
        return make_plain()

    def renew(self) -> None:
        """Have another process make the calls that come, so that it imports the candidate anew."""
        self._end_child()

    def kernels(self) -> dict[str, tuple[str, ...] | None]:
        """Have the process import the candidate.

        Returns:
            The operators that the candidate registers kernels for, with the dtypes of each kernel;
            `None` for all dtypes.
        """
        try:
            operators = self.load().get("operators")
        except Failure as failure:
            how, code, also = str(failure), "OPS-JUDGE-IMPORT", ""
            if how.startswith("did not return "):
                code, also = failure.code, ", with the compilation of its sources,"
            elif not how.startswith("raised "):
                raise
            raise Failure(f"importing the candidate{also} {how}", code=code) from failure
        found: dict[str, tuple[str, ...] | None] = {}
        for name, dtypes in operators.items() if isinstance(operators, dict) else ():
            if isinstance(dtypes, list):
                found[name] = tuple(dtype for dtype in DTYPES if dtype in dtypes)
            else:
                found[name] = None
        return found

    def _exchange(
        self, request: dict[str, Any], payload: list[bytes], event: str, limit: float
    ) -> tuple[dict[str, Any], bytes]:
        return super()._exchange(request, payload, event, self._place.within(limit))

    def _failure(self, end: EndError) -> Failure:
        failure = super()._failure(end)
        # Where a process is lost, a smaller case says nothing more, and each try starts another.
        failure.final |= not end.again
        if end.hung:
            self._time_limit = after_hang(self._time_limit)
        return failure

    def require(self, operator: Operator, arguments: Mapping[str, Any], returned: Any) -> None:
        """Compare shapes and dtypes with the declaration and the reference."""
        require_declared(operator, arguments, returned)


def require_declared(operator: Operator, arguments: Mapping[str, Any], returned: Any) -> None:
    """Compare shapes and dtypes of results with the declaration and the reference."""
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
    names = output_names(signature, right, arguments)
    for name, tensor, other in zip(
        names, flatten(signature, returned, arguments), expected, strict=False
    ):
        if tensor.dtype != other.dtype:
            raise Failure(
                f"{name} is {dtype_name(tensor.dtype)}, expected {dtype_name(other.dtype)}",
                code="OPS-RESULT-DECLARED",
            )
