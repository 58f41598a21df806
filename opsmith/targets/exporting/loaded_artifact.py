"""Load an artifact, to be called like the model or the operators that were exported."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from opsmith.compat import torch_pytree as pytree
from opsmith.compat.torch_modules import WITHOUT_VALUES
from opsmith.errors import (
    ArgumentError,
    ArtifactError,
    MissingDependencyError,
    OpsmithError,
    UnknownTargetError,
)
from opsmith.operators.core.arguments import DTYPES, dtype_name
from opsmith.signature.equations import linear
from opsmith.signature.sizes import expressions
from opsmith.signature.sizes.conditions import COMPARE
from opsmith.signature.sizes.shapes import show_sizes
from opsmith.targets.exporting.artifact import (
    MANIFEST,
    MODEL,
    OPERATORS,
    Artifact,
    Manifest,
    unnamed_size,
)
from opsmith.targets.exporting.call_errors import call_errors
from opsmith.targets.exporting.protocol import ModelTarget, OperatorRunner, OperatorTarget, Runner
from opsmith.targets.exporting.registry import get_target
from opsmith.untyped import Arguments, Untyped, Value

_REMEMBERED = 256
#: Exceptions of a target's loader where a manifest's ``details`` or ``call``, which each target
#: reads itself, lack an entry or hold a value of another type.
_DAMAGE = (AttributeError, LookupError, NotImplementedError, RecursionError, TypeError, ValueError)


class LoadedModel:
    """An exported model, callable like the model itself.

    Attributes:
        artifact: the artifact that was loaded.
        runner: the target's runner.
    """

    def __init__(self, artifact: Artifact, runner: Runner) -> None:
        self.artifact = artifact
        self.runner = runner
        self._accepted: set[object] = set()
        call = artifact.manifest.call
        self._in_spec = pytree.treespec_loads(call.in_spec) if call.in_spec else None
        self._out_spec = pytree.treespec_loads(call.out_spec) if call.out_spec else None

    def __repr__(self) -> str:
        manifest = self.artifact.manifest
        inputs = ", ".join(str(spec) for spec in manifest.inputs)
        return f"<{manifest.target} artifact {self.artifact.folder} ({inputs})>"

    def __call__(self, /, *args: object, **kwargs: object) -> Value:
        """Run the model with its original arguments and return its original structure.

        Args:
            args: tensors (or arrays), nested like the model's arguments.
            kwargs: the model's keyword arguments.

        Raises:
            ArgumentError: the arguments do not fit what the model was exported for.
            IndexError: an index in the model is out of bounds.
            RuntimeError: the runtime failed.
        """
        return self.unflatten(self.run(self.flatten(args, kwargs)))

    def run(self, inputs: Sequence[object]) -> list[Tensor]:
        """Run with one tensor or array per input, in the manifest's order.

        Raises:
            ArgumentError: their number, dtypes or shapes differ from the exported ones.
            IndexError: an index in the model is out of bounds.
            RuntimeError: the runtime failed.
        """
        tensors = [self._tensor(position, value) for position, value in enumerate(inputs)]
        # Remember accepted shapes: a model is called with the same few over and over.
        key = tuple([(tensor.shape, tensor.dtype) for tensor in tensors])
        if key not in self._accepted:
            check_inputs(self.artifact, tensors)
            if len(self._accepted) >= _REMEMBERED:
                self._accepted.clear()
            self._accepted.add(key)
        given = [tensor.detach() for tensor in tensors]
        # Runtimes read raw memory and ignore PyTorch's lazy conjugate and negative bits.
        passed = [tensor.resolve_conj().resolve_neg().contiguous() for tensor in given]
        with call_errors(self.artifact):
            outputs = list(self.runner.run(passed))
        for position in self.runner.written:
            if passed[position] is not given[position]:
                given[position].copy_(passed[position])
        return outputs

    def _tensor(self, position: int, value: object) -> Tensor:
        hint = "."
        try:
            tensor = torch.as_tensor(value)
            if tensor.is_nested:
                came = "a nested tensor"
            elif tensor.layout is not torch.strided:
                came = f"a tensor of layout {str(tensor.layout).removeprefix('torch.')}"
            elif _has_values(tensor):
                return tensor
            else:
                came = f"a {type(tensor).__name__} without values"
                hint = ": torch.export and other tracing cannot carry a loaded model."
        except Exception:  # A tensor subclass may raise anything.
            came = type(value).__name__
            if isinstance(value, np.ndarray):  # For example, an array of another byte order.
                came = f"an array of dtype {value.dtype}"
        specs = self.artifact.manifest.inputs
        name = specs[position].name if position < len(specs) else str(position)
        raise ArgumentError(
            f"{self.artifact.folder}: input {name!r} is {came}, expected a dense tensor{hint}"
        )

    def flatten(self, args: Sequence[object], kwargs: Arguments | None = None) -> list[Value]:
        """Return the tensors of a call in the order of the manifest's inputs.

        Raises:
            ArgumentError: the arguments are nested differently from the exported model's.
        """
        args, kwargs = tuple(args), dict(kwargs or {})
        call = self.artifact.manifest.call
        if kwargs and self._in_spec is not None:
            # As in Python, keyword arguments may come in any order.
            order = _child(self._in_spec, 1).context
            if sorted(order) == sorted(kwargs):
                kwargs = {name: kwargs[name] for name in order}
        leaves, spec = pytree.tree_flatten((args, kwargs))
        known = self._in_spec
        if (known is not None and spec != known) or len(leaves) != len(call.in_leaves):
            expected = ", ".join(str(spec) for spec in self.artifact.manifest.inputs)
            raise ArgumentError(
                f"{self.artifact.folder}: the arguments are not nested as the exported model's.\n"
                f"{self._misplaced(spec)}  expected: {known}\n  got:      {spec}\n"
                f"  inputs: {expected}"
            )
        for leaf, place in zip(leaves, call.in_leaves, strict=True):
            if not isinstance(place, int) and place["is"] != leaf:
                raise ArgumentError(
                    f"{self.artifact.folder}: an argument is {leaf!r}, but the model was exported "
                    f"for {place['is']!r}, which is now a constant in it"
                )
        places = zip(leaves, call.in_leaves, strict=True)
        return [leaf for leaf, place in places if isinstance(place, int)]

    def _misplaced(self, spec: object) -> str:
        """Return a line that names the inputs of each argument that is nested differently."""
        if self._in_spec is None:
            return ""
        known, given = _child(self._in_spec, 0), _child(spec, 0)
        lines, first = [], 0
        manifest = self.artifact.manifest
        for position in range(known.num_children):
            expected = _child(known, position)
            leaves = manifest.call.in_leaves[first : first + expected.num_leaves]
            first += expected.num_leaves
            got = _child(given, position) if position < given.num_children else "nothing"
            if got != expected:
                names = [repr(manifest.inputs[at].name) for at in leaves if isinstance(at, int)]
                lines.append(
                    f"  argument {position} ({', '.join(names)}): expected {_nesting(expected)}, "
                    f"got {_nesting(got)}\n"
                )
        return "".join(lines)

    def unflatten(self, outputs: Sequence[Tensor]) -> Value:
        """Rebuild the model's return value from one tensor per output of the manifest."""
        leaves = [
            outputs[leaf] if isinstance(leaf, int) else leaf["is"]
            for leaf in self.artifact.manifest.call.out_leaves
        ]
        if self._out_spec is None:
            return leaves[0] if len(leaves) == 1 else tuple(leaves)
        return pytree.tree_unflatten(leaves, self._out_spec)


def _has_values(tensor: Tensor) -> bool:
    """Return whether a tensor has memory, which runtimes read directly."""
    if torch.compiler.is_dynamo_compiling():  # The graph breaks at the runtime's call anyway.
        return True
    if type(tensor).__module__.startswith(WITHOUT_VALUES):  # data_ptr() of a FakeTensor warns.
        return False
    try:
        return tensor.data_ptr() != 0 or tensor.numel() == 0
    except RuntimeError:
        return False


def _child(spec: Untyped, index: int) -> Untyped:
    # PyTorch 2.13 has this method; 2.10 has the attribute, which 2.13 deprecates.
    return spec.child(index) if hasattr(spec, "child") else spec.children_specs[index]


def _nesting(spec: Untyped) -> str:
    """Describe the structure of an argument in a few words."""
    if isinstance(spec, str):
        return spec
    if spec.type is None:
        return "a tensor"
    return f"a {spec.type.__name__} of {spec.num_children}"


class LoadedOperators(Mapping[str, Callable[..., Value]]):
    """Exported operators by ``namespace::name``, as the runtime's users call them.

    ``loaded["ns::my_op"]`` and ``loaded.my_op`` are the same operator.

    Attributes:
        artifact: the artifact that was loaded.
        runner: the target's runner.
        ops: the operators by their short names, also those named like an attribute of `loaded`
            itself: ``loaded.ops.items(…)``.
    """

    def __init__(self, artifact: Artifact, runner: OperatorRunner) -> None:
        self.artifact = artifact
        self.runner = runner
        self.ops = _Ops(self)

    def __repr__(self) -> str:
        target, names = self.artifact.manifest.target, ", ".join(self)
        return f"<{target} artifact {self.artifact.folder} (operators {names})>"

    def __getitem__(self, name: str) -> Callable[..., Value]:
        try:
            return self.runner.functions[name]
        except KeyError:
            raise KeyError(
                f"{self.artifact.folder} has no operator {name!r}; it has {', '.join(self)}"
            ) from None

    def __getattr__(self, name: str) -> Callable[..., Value]:
        if "ops" not in self.__dict__:  # A copy that is being made has no attributes yet.
            raise AttributeError(name)
        found: Callable[..., object] = getattr(self.ops, name)
        return found

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *dir(self.ops)})

    def __iter__(self) -> Iterator[str]:
        return iter(self.runner.functions)

    def __len__(self) -> int:
        return len(self.runner.functions)


class _Ops:
    """Give access to the operators of an artifact as attributes."""

    def __init__(self, loaded: LoadedOperators) -> None:
        self._loaded = loaded

    def __dir__(self) -> list[str]:
        return sorted({_short(name) for name in self._loaded})

    def __getattr__(self, name: str) -> Callable[..., Value]:
        if name.startswith("__"):  # Copying and pickling look up such names.
            raise AttributeError(name)
        found = [qualname for qualname in self._loaded if _short(qualname) == name]
        if len(found) == 1:
            return self._loaded[found[0]]
        folder = self._loaded.artifact.folder
        if found:
            raise AttributeError(
                f"{folder} has {' and '.join(found)}; use the whole name of one, "
                f'loaded["{found[0]}"]'
            )
        raise AttributeError(f"{folder} has no operator {name!r}; it has {', '.join(self._loaded)}")


def _short(qualname: str) -> str:
    return qualname.rpartition("::")[2]


def load(folder: str | Path) -> LoadedModel | LoadedOperators:
    """Load an artifact that `opsmith.export` wrote.

    Args:
        folder: folder of the artifact.

    Returns:
        For a model, a callable with the model's arguments and return value; for operators, a
        mapping from their names to the runtime's own functions.

    Raises:
        ArtifactError: a file is missing or was changed after the export (the message names it), or
            the artifact is not for this machine.
        MissingDependencyError: the runtime is not installed.
    """
    return load_artifact(Artifact.open(folder))


def load_artifact(artifact: Artifact) -> LoadedModel | LoadedOperators:
    """Load an artifact that is already open."""
    try:
        target = get_target(artifact.manifest.target)
    except UnknownTargetError as error:
        raise ArtifactError(f"{artifact.folder / MANIFEST}: {error}") from None
    missing = target.available()
    if missing is not None:
        raise MissingDependencyError(f"{artifact.folder} needs {target.title}: {missing}")
    kind = artifact.manifest.kind
    try:
        if kind == MODEL and isinstance(target, ModelTarget):
            return LoadedModel(artifact, target.load_model(artifact))
        if kind == OPERATORS and isinstance(target, OperatorTarget):
            return LoadedOperators(artifact, target.load_operators(artifact))
    except OpsmithError:
        raise
    except _DAMAGE as error:
        raise ArtifactError(
            f"{artifact.folder / MANIFEST} is damaged: the target {target.name!r} cannot read its "
            f"details or its call ({type(error).__name__}: {error}). Export again."
        ) from error
    held = "a model" if kind == MODEL else kind
    raise ArtifactError(
        f"{artifact.folder} holds {held}, which the target {target.name!r} ({target.title}) of "
        "this opsmith does not load"
    )


def check_inputs(artifact: Artifact, tensors: Sequence[Tensor]) -> None:
    """Check that a call's tensors fit the manifest."""
    manifest = artifact.manifest
    if len(tensors) != len(manifest.inputs):
        names = ", ".join(spec.name for spec in manifest.inputs)
        count = "1 input" if len(manifest.inputs) == 1 else f"{len(manifest.inputs)} inputs"
        raise ArgumentError(f"{artifact.folder}: takes {count} ({names}), got {len(tensors)}.")
    bound: dict[str, int] = {}
    by: dict[str, str] = {}
    for spec, tensor in zip(manifest.inputs, tensors, strict=True):
        got = f"\n  got: shape {show_sizes(tensor.shape)}, dtype {dtype_name(tensor.dtype)}"
        what = f"{artifact.folder}: input {spec.name!r}"
        if tensor.dtype != DTYPES[spec.dtype]:
            raise ArgumentError(
                f"{what} has dtype {dtype_name(tensor.dtype)}, expected {spec.dtype}.{got}"
            )
        if tensor.dim() != len(spec.shape):
            raise ArgumentError(
                f"{what} has {tensor.dim()} dimensions, expected {len(spec.shape)} for "
                f"{spec.type}.{got}"
            )
        for axis, (size, expected) in enumerate(zip(tensor.shape, spec.shape, strict=True)):
            if isinstance(expected, int):
                if size != expected:
                    raise ArgumentError(
                        f"{what} does not fit {spec.type}: dimension {axis} is {size}, expected "
                        f"{expected}: the model was exported for this size alone. Name it in "
                        f"dynamic_shapes to allow others.{got}"
                    )
            elif expected in manifest.dims:
                if not _allows(manifest, expected, size):
                    raise ArgumentError(
                        f"{what} does not fit {spec.type}: dimension {axis} ({expected}) is "
                        f"{size}, the export allows {_allowed(manifest, expected)}."
                        f"{_start_hint(manifest, expected, size, unnamed_size(spec.name, axis))}"
                        f"{got}"
                    )
                if bound.setdefault(expected, size) != size:
                    raise ArgumentError(
                        f"{what} does not fit {spec.type}: dimension {axis} ({expected}) is "
                        f"{size}, expected {bound[expected]}.{got}\n  bound so far: "
                        f"{', '.join(f'{n}={s}' for n, s in bound.items())} ({expected} by "
                        f"{by[expected]!r})"
                    )
                by.setdefault(expected, spec.name)
    _check_expressions(artifact, tensors, bound)
    _check_conditions(artifact, bound)


def _check_expressions(
    artifact: Artifact, tensors: Sequence[Tensor], bound: dict[str, int]
) -> None:
    manifest = artifact.manifest
    for spec, tensor in zip(manifest.inputs, tensors, strict=True):
        for axis, (size, expected) in enumerate(zip(tensor.shape, spec.shape, strict=True)):
            if isinstance(expected, int) or expected in bound:
                continue
            found = (
                f"{artifact.folder}: input {spec.name!r} does not fit {spec.type}: dimension "
                f"{axis} ({expected}) is {size}"
            )
            symbol, start, step = _line(expected, bound)
            if step and symbol in manifest.dims:
                # No input has a dimension of exactly this size, so solve for the symbol.
                times, rest = divmod(size - start, step)
                if rest or not _allows(manifest, symbol, times):
                    allowed = _allowed(manifest, symbol)
                    raise ArgumentError(f"{found}, the export allows {expected} with {allowed}.")
                bound[symbol] = times
            wanted = _evaluate(expected, bound)
            if wanted is not None and wanted != size:
                raise ArgumentError(f"{found}, expected {wanted}.")


def _check_conditions(artifact: Artifact, bound: dict[str, int]) -> None:
    for one in artifact.manifest.conditions:
        sides = [expressions.parse(text) for text in (one.left, one.right)]
        names = sorted(frozenset().union(*map(expressions.names, sides)))
        if not bound.keys() >= set(names):
            continue
        left, right = (_evaluate(text, bound) for text in (one.left, one.right))
        # A side without a value divides by zero.
        if left is None or right is None or not COMPARE[one.relation](left, right):
            sizes = ", ".join(f"{name}={bound[name]}" for name in names)
            raise ArgumentError(
                f"{artifact.folder}: the sizes do not fit {one.operator}, whose reference is part "
                f"of the model: expected {one}, got {sizes}."
            )


def _allows(manifest: Manifest, symbol: str, size: int) -> bool:
    low, high = manifest.dims[symbol]
    return size >= low and (high is None or size <= high)


def _allowed(manifest: Manifest, symbol: str) -> str:
    low, high = manifest.dims[symbol]
    return f"{low} <= {symbol}" + ("" if high is None else f" <= {high}")


def _start_hint(manifest: Manifest, symbol: str, size: int, unnamed: str) -> str:
    """Return advice where a size is too small only because PyTorch chose its name and minimum."""
    if symbol != unnamed or size >= 2 or manifest.dims[symbol][0] != 2:
        return ""
    return (
        " The smallest size is 2 in torch.export for Dim.DYNAMIC and Dim.AUTO, and 0 for "
        'Dim("n"): use the latter in dynamic_shapes to allow smaller sizes.'
    )


def _line(text: str, bound: dict[str, int]) -> tuple[str, int, int]:
    """Return the symbol, the start and the step of a size that is ``start + step * symbol``.

    The step is 0 if the size is no linear function of its one unbound symbol.
    """
    try:
        size = expressions.parse(text)
        (symbol,) = expressions.names(size) - bound.keys()
        step, start = (int(expressions.evaluate(one, bound, {})) for one in linear(size, symbol))
    except (ValueError, ZeroDivisionError):  # no expression, not one symbol, or not linear
        return "", 0, 0
    return symbol, start, step


def _evaluate(text: str, bound: dict[str, int]) -> int | None:
    """Return the value of a size, or `None` if only PyTorch understands the expression."""
    try:
        return int(expressions.evaluate(expressions.parse(text), bound, {}))
    except (expressions.ExpressionError, KeyError, ZeroDivisionError):
        return None
