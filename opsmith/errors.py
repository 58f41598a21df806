"""The exceptions that opsmith raises: one small family, below every other module."""

#: The exit code where nothing failed, and yet not all that was asked for was checked, judged or
#: built: the one that pytest has for a run in which no test ran.
INCOMPLETE = 5


class OpsmithError(RuntimeError):
    """Base of every error that opsmith raises on purpose."""


class DeclarationError(OpsmithError, TypeError):
    """A declaration says something that opsmith cannot take; raised while declaring."""


class ArgumentError(OpsmithError, ValueError):
    """An argument of a call does not fit the declaration.

    C++ kernels raise the same words as a plain ``RuntimeError``, which this class is too, so
    ``except RuntimeError`` catches both.
    """


class OutOfBoundsError(OpsmithError, IndexError):
    """An index in a loaded model lies outside of the tensor that it selects from."""


class BuildError(OpsmithError):
    """A kernel did not compile or link; the message holds the compiler's own words."""


class MissingDependencyError(OpsmithError):
    """Something needed is not on this machine; the message says what, and how to get it."""


class StorageError(OpsmithError, OSError):
    """A file or folder cannot be written; the message names it, and the variable that chose it."""


class DifferentiationError(OpsmithError):
    """A derivative was asked for that the operator does not have."""


class CheckError(OpsmithError, AssertionError):
    """A check found an operator that does not do what its declaration says."""


class ArtifactError(OpsmithError):
    """An exported artifact is incomplete, changed, or not for this runtime."""


class ExportError(OpsmithError):
    """A target cannot carry something that a model needs; the message says what, and what to do."""


class OptionError(ExportError):
    """An option of a target or of a command has a name or a value that it does not take."""

    exit_code = 2


class FormError(ExportError):
    """An operator cannot be exported in the form that was chosen for it.

    Attributes:
        operator: its name.
        why: the rest of the message.
    """

    def __init__(self, operator: str, why: str) -> None:
        super().__init__(f"{operator}: {why}")
        self.operator = operator
        self.why = why
