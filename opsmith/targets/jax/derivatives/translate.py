"""Takes an operator's derivative from PyTorch to JAX.

PyTorch runs the backward, or the reference, on tensors without values and with symbolic sizes, and
writes down what it does: a graph of its core operators and of opsmith's. The graph becomes Python
that calls the functions of ``package/aten.py``. Whatever PyTorch decided on the way by a size or a
number is a condition, which is compared before the path is taken.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from opsmith.operators import Operator
from opsmith.operators.arguments import DTYPES
from opsmith.operators.data_dependent import asks_for_values
from opsmith.operators.written import line_of
from opsmith.signature import Parameter
from opsmith.targets.jax.derivatives.examples import examples, generic_dtypes, small_sizes
from opsmith.targets.jax.derivatives.model import (
    Derivative,
    Path,
    ReadsValuesError,
    UntranslatableError,
)
from opsmith.targets.jax.derivatives.symbols import Symbols
from opsmith.targets.jax.derivatives.writer import Writer

_MOST_TRACES = 12


def derivative(operator: Operator) -> Derivative | str:
    """The operator's derivative in JAX, or why it has none: a sentence for whoever asks for it."""
    if operator.signature.mutated:
        return "writes into an argument, and such an operator has no gradient."
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


_Traced = tuple[Callable[..., Any], list[str], list[Any]]
"""What is traced, and the names and values of what it takes after the arguments."""


class _Translation:
    def __init__(self, operator: Operator, how: str) -> None:
        self.operator = operator
        self.signature = operator.signature
        self.found = Derivative(how)
        #: The kinds of calls in which values are read.
        self.undecided: list[tuple[Any, ...]] = []

    def run(self) -> Derivative:
        names = generic_dtypes(self.operator)
        problem = self._trace_all(examples(self.operator, names[0]))
        for name in names[1:]:
            known = list(self.found.paths)
            hindered = self._trace_all(examples(self.operator, name), most=1)
            # Where the first call takes no path of its own, the others take those that there are.
            # But complex numbers may be conjugated in any of them.
            own = [p for p in self.found.paths[len(known) :] if not any(map(p.is_same, known))]
            if own or DTYPES[name].is_complex:
                hindered = self._trace_all(examples(self.operator, name))
            else:
                for path in self.found.paths:
                    for kinds in [self._in_dtype(kinds, name) for kinds in path.kinds]:
                        if kinds not in path.kinds:
                            path.kinds.append(kinds)
            problem = problem or hindered
        for path in self.found.paths:
            path.kinds[:] = [kinds for kinds in path.kinds if kinds not in self.undecided]
        self.found.paths[:] = [path for path in self.found.paths if path.kinds]
        if not self.found.paths:
            raise problem or UntranslatableError("was not run: no example of a call is known")
        self.found.lacking = str(problem or "")
        return self.found

    def _in_dtype(self, kinds: tuple[Any, ...], name: str) -> tuple[Any, ...]:
        """What `kinds` are where the call's generic dtype is `name`."""

        def one(parameter: Parameter, kind: Any) -> Any:
            type_ = parameter.tensor_type
            if kind is None or type_ is None or not type_.dtypes.generic:
                return kind
            if parameter.is_tensor_list:
                return tuple((rank, name) for rank, _ in kind)
            return kind[0], name

        return tuple(map(one, self.signature.by_name.values(), kinds))

    def _trace_all(
        self, examples: Iterator[dict[str, Any]], most: int = _MOST_TRACES
    ) -> UntranslatableError | None:
        """Follow every example that may take another path; what hindered the first of them."""
        from opsmith.targets.jax.package.derivative import kinds_of

        problem: UntranslatableError | None = None
        seen: set[str] = set()
        for arguments in examples:
            kinds = kinds_of(self.signature, arguments)
            key = repr((kinds, small_sizes(self.operator, arguments)))
            if key in seen or len(seen) >= most:
                continue
            seen.add(key)
            if any(
                kinds in path.kinds and self._takes(path, arguments) for path in self.found.paths
            ):
                continue
            try:
                self._add(kinds, self._trace(arguments))
            except UntranslatableError as error:
                problem = problem or error
                if isinstance(error, ReadsValuesError):
                    self.undecided.append(kinds)
            except Exception as error:
                first = str(error).strip().splitlines() or [""]
                text = f"cannot be traced: {type(error).__name__}: {first[0].rstrip('.')}"
                problem = problem or UntranslatableError(text)
        return problem

    def _takes(self, path: Path, arguments: dict[str, Any]) -> bool:
        """Whether a call of the path's kind decides all as the call did that it was traced in."""
        from opsmith.targets.jax.package.derivative import failing, inputs_of

        taken = ", ".join(path.inputs[: path.count])
        conditions = [
            (text, eval(f"lambda {taken}: {text}", {"math": math}), minor)
            for text, minor in path.conditions
        ]
        return not failing(conditions, inputs_of(self.signature, arguments))

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
        from torch._subclasses.functional_tensor import (
            FunctionalTensorMode,
            dispatch_functionalize,
        )
        from torch.fx.experimental.proxy_tensor import make_fx

        symbols = Symbols()
        names, inputs = symbols.inputs(self.signature.by_name, arguments)
        prepare = self._by_hand if self.found.how == "ByHand" else self._by_reference
        try:
            with symbols.mode, torch.no_grad():
                traced, more_names, more_inputs = prepare(arguments, inputs)
                graph = make_fx(
                    dispatch_functionalize(traced, FunctionalTensorMode()),
                    decomposition_table=_decompositions(),
                )(*inputs, *more_inputs)
        except RuntimeError as error:
            if asks_for_values(error):
                raise ReadsValuesError(line_of(error, self._followed)) from error
            raise
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
        """What runs the backward also takes the results, and the gradients of floating ones."""
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


@functools.cache
def _decompositions() -> dict[Any, Callable[..., Any]]:
    """How PyTorch writes its operators by its core ones; a table that takes long to make."""
    from torch._decomp import core_aten_decompositions

    return dict(core_aten_decompositions().items())


class _Context:
    """What a backward gets as ``ctx``."""

    def __init__(self, needs: Sequence[Any]) -> None:
        self.needs_input_grad = tuple(needs)
        self.saved_tensors: tuple[Any, ...] = ()

    def save_for_backward(self, *tensors: Any) -> None:
        self.saved_tensors = tensors

    def set_materialize_grads(self, value: bool) -> None:
        del value

    def mark_non_differentiable(self, *tensors: Any) -> None:
        del tensors


def _filled(arguments: Mapping[str, Any], values: Sequence[Any]) -> dict[str, Any]:
    """A call's arguments with other tensors and numbers in the places of its own."""
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
