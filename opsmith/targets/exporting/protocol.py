"""What a runtime must offer to be a target: available? export, load, run.

A target is a folder of `opsmith.targets`, or a package elsewhere with an entry point in the group
``opsmith.targets``, whose ``TARGET`` is an instance of `ModelTarget`, of `OperatorTarget`, or of a
class that is both. Nothing else anywhere names it. The module that holds ``TARGET`` imports nothing
of its runtime: listing the targets must work on a machine that has none of them.
"""

from __future__ import annotations

import abc
import importlib.util
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from torch import Tensor

from opsmith.compat import torch_modules
from opsmith.operators import Operator
from opsmith.operators.core.operator import Kernel
from opsmith.targets.exporting.artifact import Artifact, OperatorUse

if TYPE_CHECKING:
    from opsmith.targets.exporting.model import Model


#: What tracing imports when it begins, and symbolic sizes when two are first added.
TRACING = (torch_modules.COMPILER, torch_modules.EXPORTER, "sympy.tensor.tensor")


@dataclass(frozen=True)
class Option:
    """One option of a target: a keyword of `opsmith.export`, and an option of ``opsmith export``.

    Attributes:
        name: the keyword; on the command line ``--name``, with ``-`` for ``_``.
        help: one line on what it does.
        default: what it is when not given.
        choices: the texts that it may be, where those are all.
        kind: turns the text of a command line into the value; a `bool` takes no text there.
        by_operator: whether it may be a mapping from operators' names to such values, too; on the
            command line ``--name OPERATOR=VALUE``, as often as needed.
    """

    name: str
    help: str
    default: Any = None
    choices: tuple[str, ...] = ()
    kind: type = str
    by_operator: bool = False


@dataclass
class Outcome:
    """What an export has to say beside the files that it wrote.

    Attributes:
        operators: what became of each custom operator.
        versions: of the packages whose versions decide whether the artifact runs, by name.
        details: whatever the target needs to know to load it, as JSON has it: which file is the
            model, which are operator libraries.
        unverified: why what was written cannot be run here, a sentence; empty where it can.
    """

    operators: Sequence[OperatorUse] = ()
    versions: Mapping[str, str] = field(default_factory=dict)
    details: Mapping[str, Any] = field(default_factory=dict)
    unverified: str = ""


class Runner(abc.ABC):
    """A loaded model, ready to run.

    Attributes:
        written: the positions of the inputs that a run writes into; what it leaves there is copied
            back where a caller's tensor had to be copied to be passed.
    """

    written: Collection[int] = ()

    @abc.abstractmethod
    def run(self, inputs: Sequence[Tensor]) -> Sequence[Tensor]:
        """Run once.

        Whoever calls has compared `inputs` with the manifest: their number, dtypes and shapes.
        May be called any number of times, and keeps nothing between calls that could change a
        result.

        Args:
            inputs: one tensor per input of the manifest, in its order, contiguous, and without
                bits that negate or conjugate it when it is read.

        Returns:
            One tensor per output of the manifest, in its order. They share no memory with what
            the next call returns.

        Raises:
            RuntimeError: the runtime failed, or a kernel refused its arguments; the message holds
                the runtime's words, and opsmith's where a kernel spoke.
        """


class OperatorRunner(abc.ABC):
    """Loaded operators, ready to be called.

    Attributes:
        functions: the operators by ``namespace::name``, as users of the runtime call them: they
            take and return the runtime's own arrays.
    """

    functions: Mapping[str, Callable[..., Any]]

    @abc.abstractmethod
    def run(self, name: str, arguments: Mapping[str, Any]) -> Sequence[Tensor]:
        """Call one of `functions` with PyTorch's tensors: how checks compare it with PyTorch.

        May be called any number of times, and keeps nothing between calls that could change a
        result.

        Args:
            name: ``namespace::name``.
            arguments: every argument by name, as the declaration says; tensors lie in memory in
                any way. What the operator writes into may be written into or not.

        Returns:
            Its results, those of lists one by one; then the new contents of every argument that it
            writes into and that is not `None`.

        Raises:
            RuntimeError: see `Runner.run`.
        """


def _none(operator: Operator, kernel: Kernel) -> str | None:
    del operator, kernel
    return None


def _nothing(operator: Operator, kernel: Kernel) -> str:
    del operator, kernel
    return ""


def _kernel(operator: Operator) -> str:
    del operator
    return ""


@dataclass(frozen=True, kw_only=True)
class Route:
    """What all routes of an operator to a runtime have.

    Attributes:
        name: of the check.
        summary: what must hold, as the end of "checks that …".
        what: what runs, for messages.
        obstacle: why an operator with this kernel cannot go this way; `None` if it can.
        lacks: dtypes that the runtime does not have.
        flag: the option of ``opsmith check`` without which it is left out, as it is slow.
        about: what of the author's is wrong where the results are, and where it is written
            (``backward: file.py:7``); empty where that is the kernel.
        remark: what to know of the way that an operator with this kernel goes; empty for nothing.
        timed: what ``opsmith bench`` calls it; empty for a route that it leaves out.
        compiles: whether the runtime compiles every call anew, so that a check makes half as many.
        beside_one: operators of PyTorch, by name (``aten::sigmoid``), whose results the runtime
            rounds as it rounds 1, however small they are, and by up to how many units in the last
            place of 1; those of single precision for coarser dtypes, which runtimes widen.
    """

    name: str
    summary: str
    what: str
    obstacle: Callable[[Operator, Kernel], str | None] = _none
    lacks: frozenset[str] = frozenset()
    flag: str = ""
    about: Callable[[Operator], str] = _kernel
    remark: Callable[[Operator, Kernel], str] = _nothing
    timed: str = ""
    compiles: bool = False
    beside_one: Mapping[str, float] = field(default_factory=dict)


class Target(abc.ABC):
    """One runtime. Derive from `ModelTarget`, `OperatorTarget`, or both.

    Attributes:
        name: what ``target=`` says; also the folder's or the entry point's name.
        title: the runtime's own name, for messages.
        options: what `opsmith.export` takes.
        packages: the Python packages that exporting and loading need, as one imports them, the
            runtime's own first. Only functions import them, so that `import opsmith` stays quick.
        prepares: modules that take long to import, and functions that take long when first called,
            as ``module:function``; none starts a thread. `opsmith check` imports and calls them
            once, for all processes that the proofs run in.
        install: the command that installs `packages`.
        page: its documentation: a page of this repository, or an address.
    """

    name: ClassVar[str]
    title: ClassVar[str]
    options: ClassVar[tuple[Option, ...]] = ()
    packages: ClassVar[tuple[str, ...]] = ()
    prepares: ClassVar[tuple[str, ...]] = ()
    install: ClassVar[str] = ""
    page: ClassVar[str] = ""

    def available(self) -> str | None:
        """Whether the target can be used on this machine; by default, if `packages` are installed.

        Cheap, and without side effects: called to list the targets.

        Returns:
            `None` if it can; else what is missing, and the way to get it, in one sentence.
        """
        missing = [name for name in self.packages if not _installed(name)]
        if not missing:
            return None
        verb = "is" if len(missing) == 1 else "are"
        return f"{', '.join(missing)} {verb} not installed. Get it: {self.install}"

    def proofs(self) -> Sequence[Route]:
        """The routes by which `opsmith check` takes an operator to this runtime; none by default.

        Called where the runtime is missing, too: what they name is imported when they run.
        """
        return ()


def _installed(package: str) -> bool:
    try:
        return importlib.util.find_spec(package) is not None
    except (ImportError, ValueError):  # as where a test forbids its import
        return False


class ModelTarget(Target):
    """A runtime that takes models, which may call custom operators."""

    @abc.abstractmethod
    def export_model(self, model: Model, folder: Path, options: Mapping[str, Any]) -> Outcome:
        """Write everything that running `model` takes into `folder`.

        Called only where the target is available. Every file in `folder` becomes part of the
        artifact; the caller writes the manifest, and moves the folder to its place once all has
        succeeded. Files must not refer to each other by absolute paths. Exporting the same model
        twice gives artifacts that behave alike.

        Args:
            model: what is exported; it must not be changed.
            folder: an empty folder with a temporary name.
            options: every option of `options`, defaults filled in.

        Raises:
            ExportError: the runtime cannot carry something that the model needs: which operator or
                argument, why, and what to do. As much as can be known is found before the slow
                part begins.
            BuildError: a kernel does not compile for the runtime.
            MissingDependencyError: a compiler or package is not there.
        """

    @abc.abstractmethod
    def load_model(self, artifact: Artifact) -> Runner:
        """Load what `export_model` wrote, perhaps in another process or on another machine.

        The artifact's files have been compared with their digests. Files are reached by
        `Artifact.path`, so that none is loaded which the manifest does not list. Loading twice
        gives two independent runners.

        Raises:
            ArtifactError: the artifact is not for this machine or this version of the runtime.
            MissingDependencyError: the runtime is not installed.
        """


class OperatorTarget(Target):
    """A runtime that takes operators as such, without a model around them."""

    @abc.abstractmethod
    def export_operators(
        self, operators: Sequence[Operator], folder: Path, options: Mapping[str, Any]
    ) -> Outcome:
        """Write everything that calling `operators` takes into `folder`.

        The contract of `ModelTarget.export_model`, but for what is exported. The outcome has one
        use for each of `operators`, in their order, and after them those that were taken along,
        such as the operator of a gradient.

        Args:
            operators: at least one, each once.
            folder: an empty folder with a temporary name.
            options: every option of `options`, defaults filled in.

        Raises:
            ExportError: the runtime cannot carry one: which, which argument, why, what to do.
            BuildError: a kernel does not compile for the runtime.
            MissingDependencyError: a compiler or package is not there.
        """

    @abc.abstractmethod
    def load_operators(self, artifact: Artifact) -> OperatorRunner:
        """Load what `export_operators` wrote; the contract of `ModelTarget.load_model`.

        Raises:
            ArtifactError: the artifact is not for this machine or this version of the runtime.
            MissingDependencyError: the runtime is not installed.
        """
