"""The protocol of a target: whether it is available, how to export, how to load and how to run.

A target is a folder of `opsmith.targets`, or another package with an entry point in the group
``opsmith.targets``. Its ``TARGET`` is an instance of `ModelTarget`, of `OperatorTarget`, or of a
class derived from both. No other code names the target. The module that holds ``TARGET`` must not
import the runtime: listing the targets must work on a machine without any runtime.
"""

from __future__ import annotations

import abc
import importlib.util
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

from torch import Tensor

from opsmith.compat import torch_modules
from opsmith.operators import Operator
from opsmith.operators.core.operator import Kernel
from opsmith.targets.exporting.artifact import Artifact, OperatorUse, SizeCondition
from opsmith.targets.exporting.model import Model
from opsmith.untyped import Arguments, Value

#: Modules that tracing imports at its start, and symbolic sizes at their first addition.
TRACING = (torch_modules.COMPILER, torch_modules.EXPORTER, "sympy.tensor.tensor")


@dataclass(frozen=True)
class Option:
    """An option of a target: a keyword of `opsmith.export`, and an option of ``opsmith export``.

    Attributes:
        name: the keyword; on the command line ``--name``, with ``-`` for ``_``.
        help: one line that describes the option.
        default: value when the option is not given.
        choices: the texts that are allowed; empty if there is no restriction.
        kind: converts the text of the command line to the value; a `bool` is a flag without a text.
        by_operator: whether a mapping from operators' names to such values is allowed, too; on the
            command line ``--name OPERATOR=VALUE``, repeated as needed.
    """

    name: str
    help: str
    default: Value = None
    choices: tuple[str, ...] = ()
    kind: type = str
    by_operator: bool = False


@dataclass
class Outcome:
    """The outcome of an export, in addition to the files that it wrote.

    Attributes:
        operators: how each custom operator was exported.
        versions: versions, by name, of the packages that decide whether the artifact runs.
        details: data that the target needs to load the artifact, such as the file names of the
            model and of operator libraries; must be valid JSON.
        unverified: why the artifact cannot be run here, as a sentence; empty if it can.
        conditions: conditions on sizes, which the declarations of inlined operators state.
    """

    operators: Sequence[OperatorUse] = ()
    versions: Mapping[str, str] = field(default_factory=dict)
    details: Mapping[str, Value] = field(default_factory=dict)
    unverified: str = ""
    conditions: Sequence[SizeCondition] = ()


class Runner(abc.ABC):
    """A loaded model, ready to run.

    Attributes:
        written: positions of the inputs that a run writes into. If a caller's tensor had to be
            copied to be passed, the new contents are copied back.
    """

    written: Collection[int] = ()

    @abc.abstractmethod
    def run(self, inputs: Sequence[Tensor]) -> Sequence[Tensor]:
        """Run once.

        The caller has compared `inputs` with the manifest: their number, dtypes and shapes.

        Args:
            inputs: one tensor per input of the manifest, in its order, contiguous, and without lazy
                negative or conjugate bits.

        Returns:
            One tensor per output of the manifest, in its order. The tensors share no memory with
            the results of the next call.

        Raises:
            RuntimeError: the runtime failed, or a kernel refused its arguments; the message holds
                the runtime's words, or opsmith's if a kernel raised it.
        """


class OperatorRunner(abc.ABC):
    """Loaded operators, ready to be called.

    Attributes:
        functions: the operators by ``namespace::name``, in the form that the runtime's users call:
            they accept and return the runtime's own arrays.
    """

    functions: Mapping[str, Callable[..., Value]]

    @abc.abstractmethod
    def run(self, name: str, arguments: Arguments) -> Sequence[Tensor]:
        """Call one of `functions` with PyTorch tensors, for checks to compare it with PyTorch.

        May be called any number of times; no state may persist between calls that could change a
        result.

        Args:
            name: ``namespace::name``.
            arguments: every argument by name, as declared; tensors may have any strides. Arguments
                that the operator writes into may be modified or left as they are.

        Returns:
            The operator's results, with lists flattened; then the new contents of every argument
            that the operator writes into and that is not `None`.

        Raises:
            RuntimeError: the runtime failed, or a kernel refused its arguments; see `Runner.run`.
        """


@dataclass(frozen=True, kw_only=True)
class Route:
    """The attributes common to all routes of an operator to a runtime.

    Attributes:
        name: name of the check.
        summary: the property that must hold, as the end of "checks that …".
        what: what runs, for messages.
        obstacle: returns why an operator with this kernel cannot use this route; `None` if it can.
        lacks: dtypes that the runtime does not support.
        flag: the option of ``opsmith check`` that enables this route because it is slow; empty if
            the route is always enabled.
        options: returns the options of the export, if the route has one.
        about: returns which part of the author's code is at fault for wrong results, and its
            location (``backward: file.py:7``); empty if it is the kernel.
        remark: returns a note on how an operator with this kernel uses the route; empty for none.
        timed: name of the route in ``opsmith bench``; empty for a route that it leaves out.
        compiles: whether the runtime compiles every call anew, so that a check makes half as many
            calls.
        beside_one: operators of PyTorch, by name (``aten::sigmoid``), that the runtime computes
            with an absolute error, even where results are small. The value is the error in units in
            the last place of 1; it is in single precision for coarser dtypes, which runtimes widen.
        needs: checks of what PyTorch does alike; where one fails, this route has nothing to add.
    """

    name: str
    summary: str
    what: str
    obstacle: Callable[[Operator, Kernel], str | None] = lambda operator, kernel: None
    lacks: frozenset[str] = frozenset()
    flag: str = ""
    options: Callable[[Operator], Arguments] = lambda operator: {}
    about: Callable[[Operator], str] = lambda operator: ""
    remark: Callable[[Operator, Kernel], str] = lambda operator, kernel: ""
    timed: str = ""
    compiles: bool = False
    beside_one: Mapping[str, float] = field(default_factory=dict)
    needs: tuple[str, ...] = ()


class Target(abc.ABC):
    """A runtime. Derive from `ModelTarget`, `OperatorTarget`, or both.

    Attributes:
        name: value of ``target=``; also the name of the folder or the entry point.
        title: the runtime's own name, for messages.
        options: options that `opsmith.export` accepts for this target.
        packages: import names of the Python packages that exporting and loading need, the runtime's
            own first. Only functions import them, so that `import opsmith` stays quick.
        prepares: modules that are slow to import, and functions whose first call is slow, as
            ``module:function``; none starts a thread. `opsmith check` imports and calls them once,
            before it forks the processes that run the proofs.
        install: the command that installs `packages`.
        page: its documentation: a page of this repository, or a URL.
    """

    name: ClassVar[str]
    title: ClassVar[str]
    options: ClassVar[tuple[Option, ...]] = ()
    packages: ClassVar[tuple[str, ...]] = ()
    prepares: ClassVar[tuple[str, ...]] = ()
    install: ClassVar[str] = ""
    page: ClassVar[str] = ""

    def available(self) -> str | None:
        """Return why the target cannot be used on this machine; by default, missing packages.

        Cheap, and without side effects: called to list the targets.

        Returns:
            `None` if it can be used; else what is missing and how to install it, in one sentence.
        """
        missing = [name for name in self.packages if not _installed(name)]
        if not missing:
            return None
        verb = "is" if len(missing) == 1 else "are"
        return f"{', '.join(missing)} {verb} not installed. Get it: {self.install}"

    def proofs(self) -> Sequence[Route]:
        """Return the routes by which `opsmith check` runs an operator in this runtime, if any.

        Called even if the runtime is missing: modules that the routes name are imported when they
        run.
        """
        return ()


def _installed(package: str) -> bool:
    try:
        return importlib.util.find_spec(package) is not None
    except (ImportError, ValueError):  # A test may forbid the import.
        return False


class ModelTarget(Target):
    """A runtime that supports models, which may call custom operators."""

    @abc.abstractmethod
    def export_model(self, model: Model, folder: Path, options: Arguments) -> Outcome:
        """Write every file that running `model` needs into `folder`.

        Called only where the target is available. Every file in `folder` becomes part of the
        artifact; the caller writes the manifest, and moves the folder into place once everything
        has succeeded. Files must not refer to each other by absolute paths. Exporting the same
        model twice must give artifacts that behave alike.

        Args:
            model: the model to export; it must not be changed.
            folder: an empty folder with a temporary name.
            options: a value for every option of the target, defaults included.

        Raises:
            ExportError: the runtime does not support something that the model needs: the message
                names the operator or argument, the reason and a remedy. Check as much as possible
                before the slow part begins.
            BuildError: a kernel does not compile for the runtime.
            MissingDependencyError: a compiler or package is missing.
        """

    @abc.abstractmethod
    def load_model(self, artifact: Artifact) -> Runner:
        """Load an artifact of `export_model`, perhaps in another process or on another machine.

        The digests of the artifact's files have been verified. Reach files through `Artifact.path`,
        so that no file is loaded that the manifest does not list. Loading twice gives two
        independent runners.

        Raises:
            ArtifactError: the artifact is not for this machine or this version of the runtime.
            MissingDependencyError: the runtime is not installed.
        """


class OperatorTarget(Target):
    """A runtime that supports operators as such, without a model around them."""

    @abc.abstractmethod
    def export_operators(
        self, operators: Sequence[Operator], folder: Path, options: Arguments
    ) -> Outcome:
        """Write every file that calling `operators` needs into `folder`.

        The contract is the one of `ModelTarget.export_model`, except for what is exported. The
        outcome has one use for each of `operators`, in their order, followed by operators that had
        to be included, such as the operator of a gradient.

        Args:
            operators: at least one operator, without duplicates.
            folder: an empty folder with a temporary name.
            options: a value for every option of the target, defaults included.

        Raises:
            ExportError: the runtime does not support an operator; the message names the operator
                and argument, the reason and a remedy.
            BuildError: a kernel does not compile for the runtime.
            MissingDependencyError: a compiler or package is missing.
        """

    @abc.abstractmethod
    def load_operators(self, artifact: Artifact) -> OperatorRunner:
        """Load an artifact of `export_operators`, under the contract of `ModelTarget.load_model`.

        Raises:
            ArtifactError: the artifact is not for this machine or this version of the runtime.
            MissingDependencyError: the runtime is not installed.
        """
