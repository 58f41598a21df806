"""Translate an operator's derivative from PyTorch to JAX.

PyTorch runs the backward, or the reference, on tensors without values and with symbolic sizes, and
records a graph of its core operators and of opsmith's. The graph becomes Python code that calls the
functions of ``package/aten.py``. Each decision of PyTorch that depends on a size or a number
becomes a condition, which is checked before the path is used.
"""

from __future__ import annotations

import functools
import itertools
import logging
import traceback
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import FunctionCtx

from opsmith.compat.torch_modules import DECOMPOSITIONS, REFERENCES
from opsmith.compat.torch_ops import OpOverload, overload_schema
from opsmith.compat.torch_symbols import fourier_without_layout
from opsmith.compat.torch_tracing import (
    all_decompositions,
    asks_for_values,
    core_decompositions,
    functionalized,
)
from opsmith.operators import Operator
from opsmith.operators.core.arguments import DTYPES
from opsmith.operators.core.source_location import line_of
from opsmith.signature import Parameter
from opsmith.signature.dtype_variables import parts
from opsmith.system.temporarily import silenced, uncollected
from opsmith.targets.exporting.tracing import kept_sizes
from opsmith.targets.jax.derivatives.examples import generic_dtypes, made_up, registered
from opsmith.targets.jax.derivatives.model import (
    Derivative,
    Path,
    ReadsValuesError,
    UntranslatableError,
)
from opsmith.targets.jax.derivatives.symbols import KeptNumbers, Symbols
from opsmith.targets.jax.derivatives.writer import Writer

_MOST_TRACES = 12
# Modules of PyTorch that decompose operators. Its other references are left out: most of them end
# in primitives that have no translation.
_BY_OTHERS = (DECOMPOSITIONS, REFERENCES)
_NORMS = ("native_layer_norm", "native_group_norm", "linalg_vector_norm")


def derivative(operator: Operator) -> Derivative | str:
    """Return the operator's derivative in JAX, or a sentence that explains why it has none."""
    if operator.signature.mutated:
        return "writes into an argument, and such an operator has no gradient in JAX."
    rule = operator.rule
    if rule.backward is None and not rule.reference:
        name = operator.signature.name
        return (
            f"has no gradient. Register one with {name}.register_autograd(backward, "
            'setup_context=...), or declare it with autograd="reference", and export again.'
        )
    reasons: list[str] = []
    for how, wanted in (("ByHand", rule.backward is not None), ("ByReference", rule.reference)):
        if wanted:
            try:
                return _Translation(operator, how).run()
            except UntranslatableError as error:
                what = "backward" if how == "ByHand" else "reference"
                reasons.append(f"its {what} {error}")
    return f"has no gradient in JAX: {'; '.join(reasons)}."


_Key = tuple[tuple[Any, ...], tuple[Any, ...]]
"""`kinds_of` and `small_sizes` of a call; calls with equal keys should take the same path."""
_Traced = tuple[Callable[..., Any], list[str], list[Any]]
"""The function to trace, and the names and values of its inputs after the arguments."""


class _WritesError(Exception):
    """The traced function writes into a tensor."""


class _Translation:
    def __init__(self, operator: Operator, how: str) -> None:
        self.operator = operator
        self.signature = operator.signature
        self.found = Derivative(how)
        #: The kinds of calls in which values are read.
        self.undecided: list[tuple[Any, ...]] = []
        #: The traced calls, and the registered calls that could not be traced, with the reason.
        self.seen: set[_Key] = set()
        self.hindered: dict[_Key, str] = {}
        #: True if nodes write into tensors. PyTorch then replaces the writes, which takes half as
        #: long again.
        self.writes = False

    def run(self) -> Derivative:
        first, *others = generic_dtypes(self.operator)
        problem = self._trace_all(first)
        followed = [first]
        for name in others:
            hindered = self._trace_all(name, first=True)
            like = next((one for one in followed if self._takes_paths_of(one, name)), None)
            if like is None:
                hindered = self._trace_all(name)
                followed.append(name)
            else:
                self._take_paths_of(like, name)
                # The registered cases in this dtype may be others.
                hindered = self._trace_all(name, made=False)
            problem = problem or hindered
        for path in self.found.paths:
            path.kinds[:] = [kinds for kinds in path.kinds if kinds not in self.undecided]
        self.found.paths[:] = [path for path in self.found.paths if path.kinds]
        if not self.found.paths:
            raise problem or UntranslatableError("was not run: no example of a call is known")
        self.found.lacking = str(problem or "")
        what = "backward" if self.found.how == "ByHand" else "reference"
        self.found.hindered = [(*key, f"its {what} {why}") for key, why in self.hindered.items()]
        return self.found

    def _takes_paths_of(self, other: str, name: str) -> bool:
        """Return whether the first call in dtype `name` does the same as calls in dtype `other`."""
        limits = self._limits_by(other, name)
        dtypes = dict(zip(parts(other), parts(name), strict=True))
        alike = [path.in_dtypes(dtypes, limits) for path, _ in self._paths_of(other)]
        own = [path for path, _ in self._paths_of(name)]
        # Complex numbers may be conjugated on any of the other paths, so trace them separately.
        same = all(any(map(path.is_same, alike)) for path in own)
        found = self.signature.dtypes_in(name)
        return bool(own) and same and not any(DTYPES[one].is_complex for one in found)

    def _take_paths_of(self, other: str, name: str) -> None:
        """Copy the paths and the problems of calls in dtype `other` to calls in dtype `name`."""
        limits = self._limits_by(other, name)
        dtypes = dict(zip(parts(other), parts(name), strict=True))
        for path, kinds in self._paths_of(other):
            self._add(self._in_dtype(kinds, name), path.in_dtypes(dtypes, limits))

        def is_of(kinds: tuple[Any, ...]) -> bool:
            return kinds == self._in_dtype(kinds, other)

        self.undecided += [self._in_dtype(kinds, name) for kinds in self.undecided if is_of(kinds)]
        self.seen |= {(self._in_dtype(k, name), small) for k, small in self.seen if is_of(k)}
        for (kinds, small), why in list(self.hindered.items()):
            if is_of(kinds):
                self.hindered[self._in_dtype(kinds, name), small] = why

    def _limits_by(self, other: str, name: str) -> Mapping[str, str]:
        """Map numbers in the first path of `other` to limits of dtype `name`."""
        first = next((path for path, _ in self._paths_of(other)), None)
        own = next((path for path, _ in self._paths_of(name)), None)
        return {} if first is None or own is None else first.limits_by(own, name)

    def _paths_of(self, name: str) -> list[tuple[Path, tuple[Any, ...]]]:
        """Return the paths of calls whose generic dtype is `name`, with the kinds of calls."""
        return [
            (path, kinds)
            for path in self.found.paths
            for kinds in path.kinds
            if kinds == self._in_dtype(kinds, name)
        ]

    def _in_dtype(self, kinds: tuple[Any, ...], name: str) -> tuple[Any, ...]:
        """Return `kinds` with `name` as the generic dtype."""

        def one(parameter: Parameter, kind: Any) -> Any:
            type_ = parameter.tensor_type
            if kind is None or type_ is None or not type_.dtypes.generic:
                return kind
            dtype = self.signature.dtype_in(type_, name) or next(iter(parts(name)))
            if parameter.is_tensor_list:
                return tuple((rank, dtype) for rank, _ in kind)
            return kind[0], dtype

        return tuple(map(one, self.signature.by_name.values(), kinds))

    def _trace_all(
        self, name: str, *, first: bool = False, made: bool = True
    ) -> UntranslatableError | None:
        """Trace every call in one dtype that may take another path.

        Args:
            name: the dtype.
            first: whether to trace one call only.
            made: whether to make up calls, in addition to the registered cases.

        Returns:
            The problem of the first call that could not be traced.
        """
        from opsmith.targets.jax.package.derivative import kinds_of, small_sizes

        problem: UntranslatableError | None = None
        failed: set[_Key] = set()
        traces = 0
        own = ((arguments, True) for arguments in registered(self.operator, name))
        others = ((arguments, False) for arguments in made_up(self.operator, name))
        for arguments, is_registered in itertools.chain(own, others if made else ()):
            kinds = kinds_of(self.signature, arguments)
            key = kinds, small_sizes(self.signature, arguments)
            if key in failed or key in self.hindered:
                continue
            if self._is_taken(kinds, arguments, key in self.seen):
                continue
            if traces == 1 if first else traces >= _MOST_TRACES and not is_registered:
                break
            traces += 1
            self.seen.add(key)
            try:
                self._add(kinds, self._trace(arguments))
                continue
            except UntranslatableError as error:
                reason = error
                if isinstance(error, ReadsValuesError):
                    self.undecided.append(kinds)
            except Exception as error:
                words = str(error).strip().splitlines() or [""]
                place = f"{_step_of(error)}{line_of(error, self._followed)}"
                text = f"cannot be traced{place}: {type(error).__name__}: {words[0].rstrip('.')}"
                reason = UntranslatableError(text)
            failed.add(key)
            if is_registered:
                self.hindered[key] = str(reason)
            problem = problem or reason
        return problem

    def _is_taken(self, kinds: tuple[Any, ...], arguments: Mapping[str, Any], alike: bool) -> bool:
        """Return whether a known path serves a call.

        Args:
            kinds: kinds of the call.
            arguments: arguments of the call.
            alike: whether a call with the same sizes of 0 and 1 was traced. In that case a
                condition that only PyTorch's internals depend on does not require another path.
        """
        from opsmith.targets.jax.package.derivative import failing, inputs_of

        inputs = inputs_of(self.signature, arguments)
        return any(
            all(alike and minor for _, minor in failing(path.compiled, inputs))
            for path in self.found.paths
            if kinds in path.kinds
        )

    def _add(self, kinds: tuple[Any, ...], path: Path) -> None:
        for other in self.found.paths:
            if (other.body, other.inputs, other.conditions) == (
                path.body,
                path.inputs,
                path.conditions,
            ):
                if kinds not in other.kinds:
                    other.kinds.append(kinds)
                return
        path.kinds.append(kinds)
        self.found.paths.append(path)

    def _trace(self, arguments: dict[str, Any]) -> Path:
        if not self.writes:
            try:
                return self._traced(arguments)
            except _WritesError:
                self.writes = True
        return self._traced(arguments)

    def _traced(self, arguments: dict[str, Any]) -> Path:
        """Return the path of a call.

        Raises:
            _WritesError: a node writes into a tensor, and PyTorch was not told to replace writes.
        """
        from torch.fx.experimental.proxy_tensor import make_fx

        symbols = Symbols()
        names, inputs = symbols.inputs(self.signature.by_name, arguments)
        prepare = self._by_hand if self.found.how == "ByHand" else self._by_reference
        try:
            # The exception of a failed trace contains the problem, so its log is not needed.
            quiet = silenced(below=logging.CRITICAL)
            sizes = kept_sizes(), fourier_without_layout()
            with quiet, sizes[0], sizes[1], KeptNumbers(), symbols.mode, torch.no_grad():
                traced, more_names, more_inputs = prepare(arguments, inputs)
                if self.writes:
                    traced = functionalized(traced)
                # Tracing creates millions of objects, of which few are garbage before it ends.
                with uncollected():
                    graph = make_fx(traced, decomposition_table=_decompositions())(
                        *inputs, *more_inputs
                    )
        except RuntimeError as error:
            if asks_for_values(error):
                raise ReadsValuesError(line_of(error, self._followed)) from error
            raise
        if not self.writes and any(map(_writes, graph.graph.nodes)):
            raise _WritesError
        graph.graph.eliminate_dead_code()
        every = [*names, *more_names]
        body = Writer(self.found, every).body(graph.graph, self._outputs)
        return Path([], every, len(names), symbols.conditions(self.signature), body)

    @property
    def _followed(self) -> Callable[..., Any] | None:
        by_hand = self.found.how == "ByHand"
        return self.operator.rule.backward if by_hand else self.operator.reference

    def _by_reference(self, arguments: Mapping[str, Any], inputs: Sequence[Any]) -> _Traced:
        del inputs

        def traced(*values: Any) -> Any:
            return list(_tuple(self.operator.reference(**_filled(arguments, values))))

        return traced, [], []

    def _by_hand(self, arguments: Mapping[str, Any], inputs: Sequence[Any]) -> _Traced:
        """Return what runs the backward, with the results and their gradients as inputs."""
        positional, keywords = self.operator.split(_filled(arguments, inputs))
        results = _tuple(self.operator.overload(*positional, **keywords))
        named = [(r.name, value) for r, value in zip(self.signature.results, results, strict=True)]
        floats = [(name, value) for name, value in named if _differentiable(value)]
        first, last = len(inputs), len(inputs) + len(results)

        def traced(*values: Any) -> Any:
            given = _filled(arguments, values[:first])
            return self._backward(given, values[first:last], values[last:])

        names = [*(name for name, _ in named), *(f"grad_{name}" for name, _ in floats)]
        return traced, names, [*results, *(torch.empty_like(value) for _, value in floats)]

    def _backward(self, arguments: dict[str, Any], results: Any, grads: Sequence[Any]) -> Any:
        rule, rest = self.operator.rule, iter(grads)
        positional, keywords = self.operator.split(arguments)
        never = self.signature.nondifferentiable
        ctx = _Context(
            [_needs(arguments[p.name], p.name not in never) for p in self.signature.parameters]
        )
        if rule.setup_context is not None:
            output = results[0] if len(results) == 1 else tuple(results)
            given: dict[str, Any] = {"inputs": positional, "output": output}
            if keywords:
                given["keyword_only_inputs"] = keywords
            rule.setup_context(ctx, **given)
        assert rule.backward is not None
        every = [next(rest) if _differentiable(result) else None for result in results]
        returned = rule.backward(ctx, *every)
        return list(returned) if isinstance(returned, list | tuple) else [returned]

    def _outputs(self, texts: Sequence[str]) -> str:
        if self.found.how == "ByReference":
            return f"({', '.join(texts)},)"
        names = [p.name for p in self.signature.parameters if not p.keyword_only]
        pairs = zip(names, texts, strict=False)
        return "{" + ", ".join(f'"{name}": {text}' for name, text in pairs) + "}"


def _step_of(error: BaseException) -> str:
    """Return the operator that PyTorch ran when it raised (``, in aten::add``), or an empty text.

    It is in the traceback: functions that dispatch an operator in Python have it as ``func``.
    """
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    steps = [frame.f_locals.get("func") for frame in frames]
    named = [one.name() for one in steps if isinstance(one, OpOverload)]
    return f", in {named[-1].partition('.')[0]}" if named else ""


def _writes(step: Any) -> bool:
    return isinstance(step.target, OpOverload) and overload_schema(step.target).is_mutable


@functools.cache
def _decompositions() -> dict[Any, Callable[..., Any]]:
    """Return PyTorch's decompositions into operators that JAX has; building the table is slow."""
    from opsmith.targets.jax.package import aten

    table = core_decompositions()
    # Add core operators that PyTorch can decompose as well.
    for target, written in all_decompositions().items():
        if isinstance(target, OpOverload) and not overload_schema(target).is_mutable:
            name = overload_schema(target).name.removeprefix("aten::")
            apart = written.__module__ in _BY_OTHERS or name in _NORMS
            if apart and not (hasattr(aten, name) or name.startswith("sym_")):
                table.setdefault(target, written)
    table[torch.ops.aten.constant_pad_nd.default] = _padded
    # Decomposed, a gradient would flow through the maximum that is subtracted, which adds rounding.
    del table[torch.ops.aten.logsumexp.default]
    # Decomposed, it would let a gradient pass.
    del table[torch.ops.aten.detach.default]
    return table


def _padded(input: Tensor, pad: Sequence[Any], value: Any = 0) -> Tensor:
    """Replace `torch.constant_pad_nd`, whose own fake kernel would fix every size."""
    for place in range(0, len(pad), 2):
        axis, (low, high) = input.dim() - 1 - place // 2, pad[place : place + 2]
        if low < 0 or high < 0:
            kept = input.shape[axis] + min(low, 0) + min(high, 0)
            input = input.narrow(axis, max(-low, 0), kept)
        parts = [input]
        for size, at in ((low, 0), (high, 1)):
            if size > 0:
                shape = [*input.shape[:axis], size, *input.shape[axis + 1 :]]
                parts.insert(at * len(parts), input.new_full(shape, value))
        input = torch.cat(parts, axis)
    return input


class _Context(FunctionCtx):
    """The ``ctx`` of a backward, which has at once what was saved for it."""

    def __init__(self, needs: Sequence[Any]) -> None:
        self.needs_input_grad = tuple(needs)
        self.saved_tensors: tuple[Any, ...] = ()

    def save_for_backward(self, *tensors: Any) -> None:
        self.saved_tensors = tensors


def _filled(arguments: Mapping[str, Any], values: Sequence[Any]) -> dict[str, Any]:
    """Return a call's arguments with its tensors and numbers replaced by `values`."""
    rest = iter(values)

    def one(value: Any) -> Any:
        return value if value is None or isinstance(value, bool | str) else next(rest)

    return {
        name: [one(item) for item in value] if isinstance(value, list | tuple) else one(value)
        for name, value in arguments.items()
    }


def _needs(value: Any, reached: bool) -> Any:
    if isinstance(value, list | tuple):
        return [_needs(item, reached) for item in value]
    return reached and _differentiable(value)


def _differentiable(value: Any) -> bool:
    return isinstance(value, Tensor) and (value.is_floating_point() or value.is_complex())


def _tuple(returned: Any) -> tuple[Any, ...]:
    return tuple(returned) if isinstance(returned, list | tuple) else (returned,)
