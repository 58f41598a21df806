"""The model to be exported: an `ExportedProgram`, with the queries that targets make of it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import torch
from torch import Tensor, nn
from torch.export import ExportedProgram
from torch.export.graph_signature import ConstantArgument, InputKind, OutputKind, TensorArgument
from torch.fx import Node

from opsmith.compat import torch_pytree as pytree
from opsmith.compat.torch_ops import HigherOrderOperator, OpOverload, is_builtin, overload_schema
from opsmith.errors import ExportError
from opsmith.operators import Operator
from opsmith.operators.adoption.adopted import AdoptedOperator, find_adopted
from opsmith.operators.core import registry
from opsmith.operators.core.arguments import dtype_name
from opsmith.operators.core.onnx_choice import translations
from opsmith.targets.exporting.artifact import CallSpec, TensorSpec
from opsmith.untyped import Args, Arguments, Untyped, Value


@dataclass(frozen=True)
class Model:
    """A model that is being exported to a target.

    Attributes:
        program: the traced model; every target reads the model in this form.
        module: the original module, for an exporter that must trace for itself; `None` where an
            ExportedProgram was given.
        args: positional arguments of the example.
        kwargs: keyword arguments of the example.
        dim_names: the user's names of symbolic sizes, by the program's symbols.
    """

    program: ExportedProgram
    module: nn.Module | None
    args: Args
    kwargs: Arguments
    dim_names: Mapping[str, str] = field(default_factory=dict)

    @cached_property
    def inputs(self) -> tuple[TensorSpec, ...]:
        """Return the specs of the tensor arguments, in the runner's order."""
        return tuple(self._spec(node.name, node) for node in self._tensor_inputs())

    @cached_property
    def outputs(self) -> tuple[TensorSpec, ...]:
        """Return the specs of the returned tensors, in the runner's order."""
        nodes = [node for node in self._user_outputs if isinstance(node, Node)]
        names = self._output_names(len(nodes))
        return tuple(self._spec(name, node) for name, node in zip(names, nodes, strict=True))

    def shapes(self) -> dict[str, tuple[int | str, ...]]:
        """Return the current shapes of the inputs by name: inlining may have made sizes equal."""
        return {node.name: self._spec(node.name, node).shape for node in self._tensor_inputs()}

    @property
    def shape_environment(self) -> Untyped:
        """Return PyTorch's record of the symbolic sizes, or `None` if every size is a number."""
        for node in self._tensor_inputs():
            for size in node.meta["val"].shape:
                if not isinstance(size, int):
                    return size.node.shape_env
        return None

    @cached_property
    def dims(self) -> dict[str, tuple[int, int | None]]:
        """Return the smallest and largest size of each symbol in the inputs' shapes."""
        used: dict[str, tuple[int, int | None]] = {}
        ranges = {
            str(expression): (_bound(bounds.lower), _bound(bounds.upper))
            for expression, bounds in self.program.range_constraints.items()
        }
        values = [node.meta.get("val") for node in self._user_inputs]
        sizes = [size for value in values if isinstance(value, Tensor) for size in value.shape]
        alone = {str(size) for size in sizes}
        for size in sizes:
            symbols: set[Untyped] = set() if isinstance(size, int) else size.node.expr.free_symbols
            for symbol in map(str, symbols):
                low, high = ranges.get(symbol, (0, None))
                if symbol not in alone and str(size) in ranges:
                    low, high = _of_symbol(size, *ranges[str(size)]) or (low, high)
                used[self.dim_names.get(symbol, symbol)] = (low or 0, high)
        return used

    @cached_property
    def call(self) -> CallSpec:
        """Return how Python arguments map to inputs, and outputs to the return value."""
        in_leaves: list[object] = []
        for spec in self.program.graph_signature.input_specs:
            if spec.kind is not InputKind.USER_INPUT:
                continue
            if isinstance(spec.arg, TensorArgument):
                in_leaves.append(sum(isinstance(leaf, int) for leaf in in_leaves))
            elif isinstance(spec.arg, ConstantArgument):
                in_leaves.append({"is": _plain(spec.arg.value)})
            else:
                raise ExportError(
                    f"the input {spec.arg.name!r} is a {type(spec.arg).__name__}: a number that "
                    "changes from call to call cannot be an input. Pass a tensor, or let the "
                    "number follow from a tensor's size."
                )
        out_leaves: list[object] = []
        for node in self._user_outputs:
            if isinstance(node, Node):
                out_leaves.append(sum(isinstance(leaf, int) for leaf in out_leaves))
            else:
                out_leaves.append({"is": _plain(node)})
        spec = self.program.call_spec
        return CallSpec(
            _dump(spec.in_spec), _dump(spec.out_spec), tuple(in_leaves), tuple(out_leaves)
        )

    def flatten(self, args: Sequence[object], kwargs: Arguments) -> list[Tensor]:
        """Return the tensors of a call in the order of `inputs`."""
        leaves = pytree.tree_leaves((tuple(args), dict(kwargs)))
        return [
            leaf
            for leaf, place in zip(leaves, self.call.in_leaves, strict=True)
            if isinstance(place, int)
        ]

    def unflatten(self, inputs: Sequence[Tensor]) -> tuple[Args, dict[str, Value]]:
        """Rebuild a call's arguments from its tensors, and the values that the export fixed."""
        leaves, spec = pytree.tree_flatten((tuple(self.args), dict(self.kwargs)))
        filled = [
            inputs[place] if isinstance(place, int) else leaf
            for leaf, place in zip(leaves, self.call.in_leaves, strict=True)
        ]
        args, kwargs = pytree.tree_unflatten(filled, spec)
        return args, kwargs

    def mutated_inputs(self) -> list[str]:
        """Return the names of the inputs that a call writes into."""
        return [
            str(spec.target)
            for spec in self.program.graph_signature.output_specs
            if spec.kind is OutputKind.USER_INPUT_MUTATION
        ]

    def mutated_buffers(self) -> list[str]:
        """Return the buffers that a call writes into, and that carry state between calls."""
        return [
            str(spec.target)
            for spec in self.program.graph_signature.output_specs
            if spec.kind is OutputKind.BUFFER_MUTATION
        ]

    def operators(self, *, adopted: bool = False) -> dict[Operator, list[Node]]:
        """Return the program's operators that opsmith knows, with the nodes that call them.

        Args:
            adopted: whether to include operators that another library defined (`opsmith.adopt`).
        """
        found: dict[Operator, list[Node]] = {}
        for node in self.calls():
            operator = operator_of(node)
            if operator is not None and (adopted or not isinstance(operator, AdoptedOperator)):
                found.setdefault(operator, []).append(node)
        return found

    def foreign_operators(self) -> dict[str, list[Node]]:
        """Return custom operators that are neither declared nor adopted, with their nodes."""
        found: dict[str, list[Node]] = {}
        for node in self.calls():
            target = node.target
            if not isinstance(target, OpOverload) or operator_of(node) is not None:
                continue
            if target.namespace not in _PYTORCHS_OWN:
                found.setdefault(overload_schema(target).name, []).append(node)
        return found

    def calls(self) -> Iterator[Node]:
        """Yield every function call in the program, including the calls in branches and loops."""
        for module in self.program.graph_module.modules():
            if isinstance(module, torch.fx.GraphModule):
                yield from (node for node in module.graph.nodes if node.op == "call_function")

    def _tensor_inputs(self) -> Iterator[Node]:
        for node, leaf in zip(self._user_inputs, self.call.in_leaves, strict=True):
            if isinstance(leaf, int):
                yield node

    @cached_property
    def _user_inputs(self) -> tuple[Node, ...]:
        names = {
            spec.arg.name
            for spec in self.program.graph_signature.input_specs
            if spec.kind is InputKind.USER_INPUT
        }
        return tuple(
            node
            for node in self.program.graph.nodes
            if node.op == "placeholder" and node.name in names
        )

    @cached_property
    def _user_outputs(self) -> tuple[object, ...]:
        (node,) = (node for node in self.program.graph.nodes if node.op == "output")
        specs = self.program.graph_signature.output_specs
        return tuple(
            value
            for value, spec in zip(node.args[0], specs, strict=True)
            if spec.kind is OutputKind.USER_OUTPUT
        )

    def _output_names(self, count: int) -> list[str]:
        """Name the outputs by their place in the return value (``boxes``), or number them.

        A single tensor is ``output``. Names made of indices alone begin with ``output``.
        """
        numbered = ["output"] if count == 1 else [f"output_{i}" for i in range(count)]
        spec = self.program.call_spec.out_spec
        if spec is None:
            return numbered
        values = [v.meta["val"] if isinstance(v, Node) else v for v in self._user_outputs]
        try:
            paths, _ = pytree.tree_flatten_with_path(pytree.tree_unflatten(values, spec))
        except ValueError:  # The class was registered without field names.
            return numbered
        names = [
            _path_name(path)
            for (path, _), value in zip(paths, self._user_outputs, strict=True)
            if isinstance(value, Node)
        ]
        taken = {node.name for node in self._user_inputs}
        if len({*names, *taken}) < count + len(taken):
            return numbered
        return numbered if names == ["output_0"] else names

    def _spec(self, name: str, node: Node) -> TensorSpec:
        value = node.meta.get("val")
        if not isinstance(value, Tensor):
            raise ExportError(
                f"{name!r} is a {type(value).__name__}; only tensors cross into a runtime"
            )
        return TensorSpec(name, dtype_name(value.dtype), tuple(self.size(s) for s in value.shape))

    def size(self, size: Untyped) -> int | str:
        """Return a size for the manifest: a number, or an expression with the user's names."""
        if isinstance(size, int):
            return size
        expression = size.node.expr
        return int(expression) if expression.is_Integer else self.text(expression)

    def text(self, expression: Untyped) -> str:
        """Return an expression over sizes as text with the user's names."""
        names = {symbol: self.dim_names.get(str(symbol)) for symbol in expression.free_symbols}
        renamed = expression.xreplace(
            {symbol: type(symbol)(name) for symbol, name in names.items() if name}
        )
        if renamed.is_Relational and renamed.rel_op == "!=":
            return f"{renamed.lhs} != {renamed.rhs}"
        return str(renamed)


_PYTORCHS_OWN = frozenset(
    """aten prim prims higher_order quantized quantized_decomposed onnx onnx_symbolic
    _c10d_functional inductor profiler static_runtime mkldnn mkl sparse streams""".split()
)


def operator_of(node: Node) -> Operator | None:
    """Return opsmith's operator that a node calls, if any, also through ``auto_functionalized``."""
    target: object = node.target
    if isinstance(target, HigherOrderOperator) and node.args:
        target = node.args[0]
    return operator_behind(target)


def operator_behind(target: object) -> Operator | None:
    """Return opsmith's operator for an overload, if any."""
    if not isinstance(target, OpOverload):
        return None
    operator = registry.find(overload_schema(target).name)
    if operator is not None and operator.overload is target:
        return operator
    adopted = find_adopted(target)
    if adopted is None or adopted.explained or translations(adopted) or not is_builtin(target):
        return adopted
    return None  # PyTorch's exporters support the builtin, and the adoption adds nothing for them.


def _of_symbol(size: Untyped, low: int | None, high: int | None) -> tuple[int, int | None] | None:
    """Return the range of a symbol that occurs in a single size, derived from the size's range.

    PyTorch records the requested range for the size. The range that it records for the symbol
    itself begins at 2, whatever was requested.
    """
    expression = size.node.expr
    if len(expression.free_symbols) != 1:
        return None
    (symbol,) = expression.free_symbols
    start, step = expression.subs(symbol, 0), expression.diff(symbol)
    if not (step.is_Integer and step > 0 and start.is_Integer):
        return None
    first = max(0, -((start - (low or 0)) // step))
    return int(first), None if high is None else int((high - start) // step)


def _bound(value: Untyped) -> int | None:
    try:
        number = int(value)
    except (TypeError, ValueError, OverflowError, AttributeError):
        return None
    # torch also writes "no limit" as a number near 2**63.
    return None if number >= 2**62 else number


def _path_name(path: tuple[object, ...]) -> str:
    """Join the keys, fields and indices that lead to a value into one name."""
    parts = [getattr(key, "key", getattr(key, "idx", getattr(key, "name", key))) for key in path]
    first = () if path and not isinstance(path[0], pytree.SequenceKey) else ("output",)
    return "_".join(map(str, (*first, *parts)))


def _plain(value: object) -> object:
    """Return `value` if JSON can hold it, else its `repr`, which no argument equals."""
    return value if value is None or isinstance(value, bool | int | float | str) else repr(value)


def _dump(spec: Untyped) -> str:
    try:
        return json.dumps(json.loads(pytree.treespec_dumps(spec)))
    except Exception:  # The type has no serializer in pytree; positional arguments still work.
        return ""
