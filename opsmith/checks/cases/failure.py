"""Exceptions of checks, and words for those of the code that they call."""

from __future__ import annotations

import traceback
from pathlib import Path

from opsmith.checks.cases.case import Case
from opsmith.errors import MissingDependencyError
from opsmith.operators.core.validation import ResultError, SharedMemoryError
from opsmith.system.products import import_product

#: The line of a failure of which no call returned.
LIFELESS = "No call of the kernel returned, whatever the sizes and dtypes."
#: What a failure says of a wrong result that is right as the first one of a process.
DEPENDS = (
    "The same call is right in a fresh process: what it gives depends on earlier calls. Does the "
    "kernel keep a result, count its calls, or read memory that it did not write?"
)
#: What a failure says of a call that had less time than others, as an earlier one hung.
HURRIED = "(less than usual, since"
#: The beginning of the line of a failure that says which sizes have it.
SIZES_TOLD = "sizes: "
#: Message for a result that changes after its call.
CHANGED = (
    "the result of an earlier call changed afterwards: it lies in memory that the kernel uses "
    "again, or that is an argument's, or the kernel works on after a call has returned"
)


class Failure(Exception):
    """A property that must hold does not.

    Attributes:
        case: the arguments of the call; `None` where no single call shows the failure.
        run_with: the arguments that an exported model with dynamic sizes was run with, where `case`
            holds those that it was exported with; `None` otherwise.
        beside: the arguments of a second call, if only both calls together show the failure; `None`
            otherwise.
        code: the kind of failure, for programs: see `opsmith.checks.report.failure_codes`.
        blame: the cause and its source location, if the cause is not the kernel.
        crashed: whether the process that ran the kernel ended.
        final: whether a search for a smaller case cannot help.
    """

    def __init__(
        self, message: str, case: Case | None = None, *, code: str = "OPS-CHECK-OWN"
    ) -> None:
        super().__init__(message)
        self.case = case
        self.run_with: Case | None = None
        self.beside: Case | None = None
        self.code = code
        self.blame = ""
        self.crashed = self.final = False


def code_of(error: BaseException, otherwise: str) -> str:
    """Return the failure code of an exception of a call."""
    if isinstance(error, SharedMemoryError):
        return "OPS-RESULT-ALIAS"
    return "OPS-RESULT-DECLARED" if isinstance(error, ResultError) else otherwise


class Inapplicable(Exception):
    """The check does not apply to this operator and kernel; the message says why."""


def need_emulators(what: str) -> None:
    """Require what emulates CUDA; `what` needs it. Raise `Inapplicable` if it is not installed."""
    try:
        import_product("opsmith.kernels.languages.emulated_cuda", what)
    except MissingDependencyError as error:
        raise Inapplicable(str(error)) from None


def raised(error: BaseException) -> str:
    """Describe the exception of a call, with the innermost line of the user's code."""
    if isinstance(error, SharedMemoryError):  # opsmith's own words about the kernel's results
        return str(error)
    # PyTorch adds the addresses of its own C++ functions to some messages.
    said = str(error).partition("\nException raised from ")[0].strip()
    if "does not require grad and does not have a grad_fn" in said:
        said += "\nAn operator runs below autograd: take torch.func.vjp for a gradient in it."
    return f"raised {type(error).__name__}: {said}{place_of(error)}"


def place_of(error: BaseException | None) -> str:
    """Return a line with the innermost place of the user's code; empty if there is none."""
    own = Path(__file__).parents[2]
    for frame in reversed(traceback.extract_tb(error.__traceback__ if error else None)):
        path = Path(frame.filename)
        inside = path.is_relative_to(own) or "site-packages" in path.parts
        if not inside and path.is_file():
            return f"\n  at {frame.filename}:{frame.lineno}"
    return ""
