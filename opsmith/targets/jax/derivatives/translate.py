"""Takes an operator's derivative from PyTorch to JAX.

PyTorch runs the backward, or the reference, on tensors without values and with symbolic sizes, and
writes down what it does: a graph of its core operators and of opsmith's. The graph becomes Python
that calls the functions of ``package/aten.py``. Whatever PyTorch decided on the way by a size or a
number is a condition, which is compared before the path is taken.
"""

from __future__ import annotations

import contextlib
import itertools
import math
import operator as python_operator
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.fx import Node

from opsmith.operators import Operator, registry
from opsmith.operators.arguments import DTYPES
from opsmith.signature.binding import bind
from opsmith.signature.expressions import Scalar, evaluate
from opsmith.signature.model import (
    NO_DEFAULT,
    Parameter,
    Result,
    ScalarType,
    SequenceType,
    Signature,
)
from opsmith.signature.shapes import Fixed, Variadic
from opsmith.targets.jax.library import obstacle

_MOST_TRACES = 12
_MOST_CASES = 24
_SIZES = (5, 7, 11, 13, 17, 19, 23, 29)
_INFIX = {
    python_operator.add: "+",
    python_operator.sub: "-",
    python_operator.mul: "*",
    python_operator.floordiv: "//",
    python_operator.mod: "%",
    python_operator.truediv: "/",
    python_operator.pow: "**",
}
_CALLS = {
    torch.sym_max: "max",
    torch.sym_min: "min",
    torch.sym_float: "float",
    torch.sym_int: "int",
    math.floor: "math.floor",
    math.ceil: "math.ceil",
}
# The files in which PyTorch says what its operators do to sizes and strides.
_INTERNAL = re.compile(
    r"torch/(_prims_common|_prims|_refs|_decomp|_meta_registrations|_subclasses)\b"
)
# Where a tensor lies, and how, is not JAX's business.
_LAYOUT = ("device", "layout", "memory_format", "pin_memory", "non_blocking")


class UntranslatableError(Exception):
    """Why a derivative cannot be taken to JAX."""


@dataclass
class Path:
    """One variant as text.

    Attributes:
        kinds: the ``repr`` of what the variant is for, one per call that took it.
        inputs: the names of what it takes: the arguments, then results and their gradients.
        count: how many of them are arguments.
        conditions: text of each, and whether it is PyTorch's own concern.
        body: the statements.
    """

    kinds: list[str]
    inputs: list[str]
    count: int
    conditions: list[tuple[str, bool]]
    body: list[str]


@dataclass
class Derivative:
    """An operator's derivative, translated.

    Attributes:
        how: ``"ByHand"`` or ``"ByReference"``.
        paths: the variants.
        calls: the operators that it calls.
    """

    how: str
    paths: list[Path] = field(default_factory=list)
    calls: list[Operator] = field(default_factory=list)


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


class _Translation:
    def __init__(self, operator: Operator, how: str) -> None:
        self.operator = operator
        self.signature = operator.signature
        self.found = Derivative(how)

    def run(self) -> Derivative:
        names = _dtypes(self.operator)
        problem = self._trace_all(_examples(self.operator, names[0]))
        for name in names[1:]:
            # Where no dtype was written down, every dtype takes the same paths.
            if any(_names_dtype(path) for path in self.found.paths):
                problem = self._trace_all(_examples(self.operator, name)) or problem
                continue
            for path in self.found.paths:
                path.kinds += [
                    other
                    for other in (
                        kinds.replace(f"'{names[0]}'", f"'{name}'") for kinds in path.kinds
                    )
                    if other not in path.kinds
                ]
        if not self.found.paths:
            raise problem or UntranslatableError("was not run: no example of a call is known")
        return self.found

    def _trace_all(self, examples: Iterator[dict[str, Any]]) -> UntranslatableError | None:
        """Follow every example that may take another path; what hindered the first of them."""
        problem: UntranslatableError | None = None
        seen: set[str] = set()
        for arguments in examples:
            kinds = repr(_kinds(self.operator, arguments))
            key = kinds + repr(_small(self.operator, arguments))
            if key in seen or len(seen) >= _MOST_TRACES:
                continue
            seen.add(key)
            try:
                self._add(kinds, self._trace(arguments))
            except UntranslatableError as error:
                problem = problem or error
            except Exception as error:
                first = str(error).strip().splitlines() or [""]
                text = f"cannot be traced: {type(error).__name__}: {first[0].rstrip('.')}"
                problem = problem or UntranslatableError(text)
        return problem

    def _add(self, kinds: str, path: Path) -> None:
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
        from torch._decomp import core_aten_decompositions
        from torch._subclasses.functional_tensor import (
            FunctionalTensorMode,
            dispatch_functionalize,
        )
        from torch.fx.experimental.proxy_tensor import make_fx

        symbols = _Symbols()
        names, inputs = symbols.inputs(self.signature.by_name, arguments)
        count = len(inputs)

        def again(values: Sequence[Any]) -> dict[str, Any]:
            return _filled(arguments, values)

        with symbols.mode, torch.no_grad():
            if self.found.how == "ByHand":
                results = _tuple(self.operator.overload(*self._positional(again(inputs))))
                grads = [torch.empty_like(r) for r in results if _differentiable(r)]
                extra = [*results, *grads]
                names = [
                    *names,
                    *(r.name for r in self.signature.results),
                    *(
                        f"grad_{r.name}"
                        for r, value in zip(self.signature.results, results, strict=True)
                        if _differentiable(value)
                    ),
                ]

                def traced(*values: Any) -> Any:
                    given = again(values[:count])
                    outs = values[count : count + len(results)]
                    return self._backward(given, outs, values[count + len(results) :])

            else:
                extra = []

                def traced(*values: Any) -> Any:
                    return list(_tuple(self.operator.reference(**again(values))))

            graph = make_fx(
                dispatch_functionalize(traced, FunctionalTensorMode()),
                decomposition_table=dict(core_aten_decompositions().items()),
            )(*inputs, *extra)
        graph.graph.eliminate_dead_code()
        writer = _Writer(self.found, names)
        body = writer.body(graph.graph, self._outputs)
        return Path(
            [], names, count, symbols.conditions(_numbers_that_are_sizes(self.signature)), body
        )

    def _positional(self, arguments: dict[str, Any]) -> list[Any]:
        return [arguments[parameter.name] for parameter in self.signature.parameters]

    def _backward(self, arguments: dict[str, Any], results: Any, grads: Sequence[Any]) -> Any:
        rule, rest = self.operator.rule, iter(grads)
        positional, keywords = self.operator.split(arguments)
        ctx = _Context([_needs(arguments[p.name]) for p in self.signature.parameters])
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


class _Symbols:
    """Inputs without values, whose sizes and numbers are symbols, and what was asked of those."""

    def __init__(self) -> None:
        from torch._subclasses.fake_tensor import FakeTensorMode
        from torch.fx.experimental.symbolic_shapes import ShapeEnv

        self.env = ShapeEnv(specialize_zero_one=False, duck_shape=False)
        self.mode = FakeTensorMode(shape_env=self.env)

    def inputs(
        self, parameters: Mapping[str, Parameter], arguments: Mapping[str, Any]
    ) -> tuple[list[str], list[Any]]:
        """Their names, and the inputs, in the order of `inputs_of` in the package."""
        names: list[str] = []
        found: list[Any] = []
        for name in parameters:
            value = arguments[name]
            many = isinstance(value, list | tuple)
            for position, item in enumerate(value if many else [value]):
                if item is None or isinstance(item, bool | str):
                    continue
                names.append(f"{name}_{position}" if many else name)
                found.append(self._input(names[-1], item))
        return names, found

    def _input(self, name: str, value: Any) -> Any:
        from torch._dynamo.source import ConstantSource
        from torch.fx.experimental.symbolic_shapes import DimDynamic, StatelessSymbolicContext

        source, dynamic = ConstantSource(name), DimDynamic.DYNAMIC
        if isinstance(value, Tensor):
            sizes: Any = StatelessSymbolicContext(dynamic_sizes=[dynamic] * value.dim())
            value = value.detach().contiguous()
            return self.mode.from_tensor(value, source=source, symbolic_context=sizes)
        if isinstance(value, int):
            symbol = self.env.create_symbol(
                value,
                source,
                dynamic_dim=dynamic,
                constraint_dim=None,
                positive=None,
                do_not_specialize_zero_one=True,
            )
            return self.env.create_symintnode(symbol, hint=value, source=source)
        symbol = self.env.create_unspecified_symbol(value, source, dynamic_dim=dynamic)
        return self.env.create_symfloatnode(symbol, hint=value, source=source)

    def conditions(self, sizes: frozenset[str]) -> list[tuple[str, bool]]:
        """What held of sizes and numbers when the path was taken, as Python over the inputs.

        Args:
            sizes: the inputs that are numbers, and sizes of tensors as they are.
        """
        from torch.utils._sympy.printers import PythonPrinter

        places: dict[str, str] = {}
        for symbol, sources in self.env.var_to_sources.items():
            name: Any = sources[0].name
            name = name() if callable(name) else name  # a method before PyTorch 2.12
            match = re.fullmatch(r"(\w+)(?:\.size\(\)\[(\d+)\])?", name)
            if match is not None:
                size = "" if match[2] is None else f".shape[{match[2]}]"
                places[str(symbol)] = f"{match[1]}{size}"
        found: dict[str, bool] = {}
        for guard in self.env.guards:
            free = {str(symbol) for symbol in guard.expr.free_symbols}
            if not free <= set(places):
                continue  # about strides or offsets, which are always the same in JAX
            text = PythonPrinter().doprint(guard.expr)
            of_sizes = all(".shape" in places[name] or places[name] in sizes for name in free)
            minor = (_is_stride(guard.expr) and of_sizes) or _is_internal(guard)
            for name in sorted(free, key=len, reverse=True):
                text = re.sub(rf"\b{name}\b", places[name], text)
            found[text] = minor
        return list(found.items())


def _numbers_that_are_sizes(signature: Signature) -> frozenset[str]:
    owners: list[Parameter | Result] = [*signature.parameters, *signature.results]
    return frozenset(
        dim.expression.parameter
        if dim.expression.index is None
        else f"{dim.expression.parameter}_{dim.expression.index}"
        for owner in owners
        if owner.tensor_type is not None and owner.tensor_type.shape is not None
        for dim in owner.tensor_type.shape.dims
        if isinstance(dim, Fixed) and isinstance(dim.expression, Scalar)
    )


def _is_stride(expression: Any) -> bool:
    """Whether it compares strides of contiguous tensors, which are products of max(1, size)."""
    import sympy  # type: ignore[import-untyped]

    return any(type(part).__name__ == "Max" for part in sympy.preorder_traversal(expression))


def _is_internal(guard: Any) -> bool:
    """Whether PyTorch's own operators ask for it, and took their general way.

    The graph then holds for other sizes too. An equation is another matter: what is equal to a
    number is replaced by the number.
    """
    import sympy

    location = str(getattr(guard.sloc, "framework_loc", ""))
    return not isinstance(guard.expr, sympy.Eq) and bool(_INTERNAL.search(location))


def _filled(arguments: Mapping[str, Any], values: Sequence[Any]) -> dict[str, Any]:
    """A call's arguments with other tensors and numbers in the places of its own."""
    rest = iter(values)

    def one(value: Any) -> Any:
        return value if value is None or isinstance(value, bool | str) else next(rest)

    return {
        name: [one(item) for item in value] if isinstance(value, list | tuple) else one(value)
        for name, value in arguments.items()
    }


class _Writer:
    """Writes a graph as Python."""

    def __init__(self, found: Derivative, names: Sequence[str]) -> None:
        self.found = found
        self.names = list(names)
        self.texts: dict[Node, str] = {}

    def body(self, graph: Any, outputs: Callable[[Sequence[str]], str]) -> list[str]:
        lines: list[str] = []
        rest = iter(self.names)
        taken = set(self.names)
        for node in graph.nodes:
            if node.op == "placeholder":
                self.texts[node] = next(rest)
            elif node.op == "output":
                returned = node.args[0]
                many = returned if isinstance(returned, list | tuple) else [returned]
                lines.append(f"return {outputs([self.text(item) for item in many])}")
            elif node.op == "call_function":
                name = node.name if node.name not in taken else f"{node.name}_"
                taken.add(name)
                lines.append(f"{name} = {self.call(node)}")
                self.texts[node] = name
            else:
                raise UntranslatableError(f"holds a constant tensor ({node.target})")
        return lines

    def text(self, value: Any) -> str:
        if isinstance(value, Node):
            return self.texts[value]
        if isinstance(value, list | tuple):
            inner = ", ".join(self.text(item) for item in value)
            return f"[{inner}]"
        if isinstance(value, torch.dtype):
            return repr(str(value).removeprefix("torch."))
        if isinstance(value, float) and not math.isfinite(value):
            return f'float("{value}")'
        if value is None or isinstance(value, bool | int | float | str):
            return repr(value)
        raise UntranslatableError(f"passes {value!r}, which JAX does not have")

    def call(self, node: Node) -> str:
        from opsmith.targets.jax.package import aten

        target: Any = node.target
        arguments = [self.text(item) for item in node.args]
        if target is python_operator.getitem:
            return f"{arguments[0]}[{arguments[1]}]"
        if target in _INFIX:
            return f"{arguments[0]} {_INFIX[target]} {arguments[1]}"
        if target is python_operator.neg:
            return f"-{arguments[0]}"
        if target in _CALLS:
            return f"{_CALLS[target]}({', '.join(arguments)})"
        keywords = [
            f"{name}={self.text(value)}"
            for name, value in node.kwargs.items()
            if name not in _LAYOUT
        ]
        if not isinstance(target, torch._ops.OpOverload):
            raise UntranslatableError(f"calls {target}, which has no translation to JAX")
        namespace, name = target._schema.name.split("::")
        if namespace != "aten":
            return f"{self.operator(target)}({', '.join([*arguments, *keywords])})"
        if name == "sym_size":
            return f"{arguments[0]}.shape[{arguments[1]}]"
        if name == "sym_numel":
            return f"{arguments[0]}.size"
        known = getattr(aten, name, None)
        if not callable(known) or (name in ("index", "index_put") and _has_mask(node)):
            by = " by a mask" if known is not None else ""
            raise UntranslatableError(f"uses aten::{name}{by}, which has no translation to JAX")
        return f"aten.{name}({', '.join([*arguments, *keywords])})"

    def operator(self, target: Any) -> str:
        for operator in registry.all_operators():
            if operator.overload is target:
                problem = obstacle(operator, operator.kernels.get("cpu"))
                if problem is not None:
                    raise UntranslatableError(f"calls {operator.name}: {problem.rstrip('.')}")
                if operator not in self.found.calls:
                    self.found.calls.append(operator)
                return f'operators["{operator.name}"]'
        raise UntranslatableError(f"calls {target}, which has no translation to JAX")


def _has_mask(node: Node) -> bool:
    indices: Any = node.args[1]
    return any(
        item is not None and item.meta["val"].dtype in (torch.bool, torch.uint8) for item in indices
    )


# --- examples of calls ---------------------------------------------------------------------------


def _dtypes(operator: Operator) -> list[str]:
    """The generic dtypes to trace in, the one to begin with first."""
    generic = operator.signature.generic
    names = generic.names if generic is not None else ("float32",)
    return sorted(names, key=lambda name: name != "float32")


def _names_dtype(path: Path) -> bool:
    return any(re.search(r"'(b?float|complex)\d+'", line) for line in path.body)


def _examples(operator: Operator, name: str) -> Iterator[dict[str, Any]]:
    """Calls to trace in one dtype: the author's, and others made up from the declaration."""
    dtype = DTYPES[name]
    cases = (case for make in operator.cases for case in make(dtype, 0))
    given = [operator.arguments((), dict(case)) for case in itertools.islice(cases, _MOST_CASES)]
    # A size of 0 or 1 takes paths of its own; the general ones come first.
    yield from sorted(given, key=lambda arguments: len(_small(operator, arguments)))
    if not operator.only_registered_cases:
        yield from _made_up(operator, dtype)


def _made_up(operator: Operator, dtype: torch.dtype) -> Iterator[dict[str, Any]]:
    signature = operator.signature
    choices: list[list[Any]] = []
    free = [p for p in signature.parameters if p.optional or _is_bool(p)][:3]
    for parameter in free:
        choices.append([False, True] if _is_bool(parameter) else [True, False])
    ranks = range(5) if signature.variadic_dims else range(1)
    for rank in (2, 1, 3, 0, 4) if len(ranks) > 1 else ranks:
        for chosen in itertools.product(*choices):
            picked = {p.name: value for p, value in zip(free, chosen, strict=True)}
            with contextlib.suppress(Exception):  # sizes that do not fit each other
                yield _made(operator, dtype, rank, picked)
    # A size of 1 may be a path of its own.
    for name in signature.dims:
        with contextlib.suppress(Exception):
            yield _made(operator, dtype, 2, {}, single=name)


def _is_bool(parameter: Parameter) -> bool:
    return parameter.type == ScalarType("bool")


def _made(
    operator: Operator,
    dtype: torch.dtype,
    rank: int,
    picked: Mapping[str, bool],
    single: str | None = None,
) -> dict[str, Any]:
    signature = operator.signature
    arguments: dict[str, Any] = {}
    for parameter in signature.parameters:
        if parameter.tensor_type is not None:
            continue
        arguments[parameter.name] = _number(parameter, picked)
    dims = {name: _SIZES[i % len(_SIZES)] for i, name in enumerate(signature.dims)}
    if single is not None:
        dims[single] = 1
    for parameter in signature.tensors:
        type_ = parameter.tensor_type
        if parameter.optional and not picked.get(parameter.name, True):
            arguments[parameter.name] = None
            continue
        assert type_ is not None
        sizes: list[int] = []
        for dim in type_.shape.dims if type_.shape is not None else ():
            if isinstance(dim, Fixed):
                sizes.append(evaluate(dim.expression, dims, arguments))
            elif isinstance(dim, Variadic):
                sizes += _SIZES[-rank:] if rank else []
            else:
                sizes.append(3)
        own = dtype if type_.dtypes.generic else DTYPES[type_.dtypes.names[0]]
        tensor = torch.zeros(sizes, dtype=own)
        arguments[parameter.name] = [tensor] if parameter.is_tensor_list else tensor
    from opsmith.operators.arguments import describe

    bind(signature, describe(arguments, signature))
    return {name: arguments[name] for name in signature.by_name}


def _number(parameter: Parameter, picked: Mapping[str, bool]) -> Any:
    if parameter.name in picked and (_is_bool(parameter) or not picked[parameter.name]):
        return picked[parameter.name] if _is_bool(parameter) else None
    if parameter.default is not NO_DEFAULT and parameter.default is not None:
        return parameter.default
    made: dict[str, Any] = {"int": 2, "float": 0.5, "bool": True, "str": ""}
    type_ = parameter.type
    if isinstance(type_, SequenceType):
        return [made[type_.kind]] * (2 if type_.length is None else type_.length)
    assert isinstance(type_, ScalarType)
    return made[type_.kind]


def _small(operator: Operator, arguments: Mapping[str, Any]) -> list[tuple[str, int, int]]:
    """Where a call has sizes of 0 or 1."""
    return [
        (parameter.name, axis, size)
        for parameter in operator.signature.tensors
        if isinstance(arguments[parameter.name], Tensor)
        for axis, size in enumerate(arguments[parameter.name].shape)
        if size < 2
    ]


def _kinds(operator: Operator, arguments: Mapping[str, Any]) -> tuple[Any, ...]:
    from opsmith.targets.jax.package.derivative import kinds_of

    return kinds_of(operator.signature, arguments)


def _needs(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return [_needs(item) for item in value]
    return _differentiable(value)


def _differentiable(value: Any) -> bool:
    return isinstance(value, Tensor) and (value.is_floating_point() or value.is_complex())


def _tuple(returned: Any) -> tuple[Any, ...]:
    return tuple(returned) if isinstance(returned, list | tuple) else (returned,)
