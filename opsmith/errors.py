"""The exceptions that opsmith raises: one small family, which every other module may import."""

from collections.abc import Iterable

#: The exit code if nothing failed, but not all that was requested was checked, judged or built.
#: pytest has the same exit code for a run without any test.
INCOMPLETE = 5

#: The exit code of `opsmith judge` if the machine grants no sandbox.
NOT_SANDBOXED = 6


def no_such(kind: str, name: str, known: Iterable[str]) -> str:
    """Return the message for a name that does not exist, with the nearest name or with all names.

    Args:
        kind: the kind of thing that the name should name, as in "check".
        name: the name.
        known: the names that exist.
    """
    from difflib import get_close_matches

    names = list(known)
    close = get_close_matches(name, names, 1)
    rest = f"did you mean {close[0]!r}?" if close else f"there are {', '.join(names) or 'none'}"
    return f"there is no {kind} {name!r}; {rest}"


class OpsmithError(RuntimeError):
    """Base of every error that opsmith raises on purpose."""


class DeclarationError(OpsmithError, TypeError):
    """A declaration is not supported; raised while declaring."""


class ArgumentError(OpsmithError, ValueError):
    """An argument of a call does not fit the declaration.

    C++ kernels raise a plain ``RuntimeError`` with the same message. This class is a
    ``RuntimeError`` too, so ``except RuntimeError`` catches both.
    """


_KINDS = (AttributeError, IndexError, KeyError, MemoryError, NotImplementedError)
#: The errors of kernels that raise an exception of Python's, by the name of this kind.
KERNEL_ERRORS: dict[str, type[OpsmithError]] = {
    kind.__name__: type(f"Kernel{kind.__name__}", (OpsmithError, kind), {"__module__": __name__})
    for kind in (*_KINDS, AssertionError, TypeError, ValueError)
}
globals().update((one.__name__, one) for one in KERNEL_ERRORS.values())  # pickle looks there


class OutOfBoundsError(OpsmithError, IndexError):
    """An index in a loaded model lies outside the tensor that it selects from."""


class BuildError(OpsmithError):
    """A kernel did not compile or link; the message has the compiler's output."""


class MissingDependencyError(OpsmithError):
    """A program or package that is needed is missing; the message says which, and how to get it."""


class StorageError(OpsmithError, OSError):
    """A file or folder cannot be written; the message names it, and the variable that chose it."""


class DifferentiationError(OpsmithError):
    """An operator does not have the requested derivative."""


class CheckError(OpsmithError, AssertionError):
    """A check found an operator that does not do what its declaration says."""


class ArtifactError(OpsmithError):
    """An exported artifact is incomplete, changed, or not for this runtime."""


class ExportError(OpsmithError):
    """A target does not support part of a model; the message says which part, and what to do."""


class OptionError(ExportError):
    """A target or a command does not support an option of this name or value."""

    exit_code = 2


class FormError(ExportError):
    """An operator cannot be exported in the chosen form.

    Attributes:
        operator: the operator's name.
        why: the rest of the message.
    """

    def __init__(self, operator: str, why: str) -> None:
        super().__init__(f"{operator}: {why}")
        self.operator = operator
        self.why = why


class LoadError(OpsmithError):
    """The file or module that the user named is missing, raises, or declares no operator."""

    exit_code = 2


class UnknownTargetError(OpsmithError):
    """No target has the requested name."""

    exit_code = 2


class UnknownCheckError(OpsmithError):
    """Raised for the name of a check that does not exist."""

    exit_code = 2


class FaultError(OpsmithError):
    """Raised for behaviour of a kernel that a GPU does not guarantee.

    Attributes:
        code: the kind of failure, see `opsmith.checks.report.failure_codes`.
    """

    def __init__(self, message: str, code: str) -> None:
        super().__init__(message)
        self.code = code
