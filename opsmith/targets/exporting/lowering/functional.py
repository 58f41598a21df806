"""Make mutating operators functional, for inlining and for runtimes with immutable values.

An operator that writes into arguments has a functional twin, which returns the new contents in
addition to the results. A call of the operator becomes a call of the twin and a copy back, which
PyTorch's own functionalization handles, also through views.
"""

from __future__ import annotations

import copy
import dataclasses
import functools
import json
import operator as python_operator
from collections.abc import Callable, Collection, Sequence

import torch
from torch import Tensor
from torch.export import ExportedProgram
from torch.fx import Node
from torch.library import Library
from torch.overrides import TorchFunctionMode

from opsmith.compat.torch_library import destroy
from opsmith.compat.torch_ops import HigherOrderOperator, OpOverload, OpOverloadPacket
from opsmith.compat.torch_tracing import updated
from opsmith.errors import ExportError
from opsmith.operators import Operator
from opsmith.operators.core.arguments import each_tensor, map_tensors
from opsmith.signature.parameters import (
    Parameter,
    Result,
    ScalarType,
    SequenceType,
    TensorListType,
    TensorType,
)
from opsmith.targets.exporting.model import operator_behind, operator_of
from opsmith.untyped import Arguments, Untyped, Value

_NAMESPACE = "opsmith_functional"


_OF_TWINS: dict[OpOverload, Operator] = {}
# A registration lasts as long as its Library, and an operator may be declared again.
_TWINS: dict[tuple[str, bool], tuple[Operator, Library]] = {}


def twin(operator: Operator, *, traced: bool = False) -> OpOverload:
    """Return the functional twin: a function of the same arguments to results and new contents.

    Args:
        traced: whether TorchScript will trace the twin. TorchScript cannot represent a sequence of
            bools and rounds a sequence of floats, so the twin's arguments are then texts made by
            `encode`.
    """
    signature = operator.signature
    name = f"{signature.namespace}__{signature.name}{'__traced' if traced else ''}"
    known, library = _TWINS.get((operator.name, traced), (None, None))
    if known is not operator:
        if library is not None:
            destroy(library)
        written = tuple(Result(p.name, _type_of(p)) for p in signature.mutated)
        pure = dataclasses.replace(
            signature,
            namespace=_NAMESPACE,
            name=name,
            parameters=tuple(_pure(parameter, traced) for parameter in signature.parameters),
            results=(*signature.results, *written),
        )
        library = Library(_NAMESPACE, "FRAGMENT")
        library.define(pure.schema(), tags=(torch.Tag.needs_contiguous_strides,))
        run = functional(operator, operator)

        def call(*args: object, **kwargs: object) -> object:
            arguments = operator.arguments(args, kwargs)
            positional, keywords = operator.split(decode(operator, arguments))
            return run(*positional, **keywords)

        library.impl(name, call, "CompositeExplicitAutograd")
        torch.library.register_fake(pure.qualname, call, lib=library)
        _TWINS[operator.name, traced] = operator, library
    overload: OpOverload = getattr(getattr(torch.ops, _NAMESPACE), name).default
    _OF_TWINS[overload] = operator
    return overload


def operator_of_twin(target: object) -> Operator | None:
    """Return the operator whose functional twin is `target`, or `None`."""
    return _OF_TWINS.get(target) if isinstance(target, OpOverload) else None


def is_encoded(parameter: Parameter) -> bool:
    """Return whether a parameter is a sequence that TorchScript cannot trace."""
    return isinstance(parameter.type, SequenceType) and parameter.type.kind in ("bool", "float")


def encode(operator: Operator, arguments: Arguments) -> dict[str, object]:
    """Return the arguments in the form that the traced twin accepts."""
    return {
        name: json.dumps(list(value))
        if is_encoded(operator.signature.by_name[name]) and value is not None
        else value
        for name, value in arguments.items()
    }


def decode(operator: Operator, arguments: Arguments) -> dict[str, object]:
    """Reverse `encode`."""
    return {
        name: json.loads(value)
        if isinstance(value, str) and is_encoded(operator.signature.by_name[name])
        else value
        for name, value in arguments.items()
    }


def _pure(parameter: Parameter, traced: bool) -> Parameter:
    """Return the twin's parameter: not mutated, and a text if it is encoded."""
    type_, default = parameter.type, parameter.default
    if traced and is_encoded(parameter):
        type_ = ScalarType("str")
        default = json.dumps(list(default)) if isinstance(default, list | tuple) else default
    return dataclasses.replace(parameter, type=type_, default=default, mutated=False)


def _type_of(parameter: Parameter) -> TensorType | TensorListType:
    assert isinstance(parameter.type, TensorType | TensorListType)
    return parameter.type


def functional(operator: Operator, function: Callable[..., Value]) -> Callable[..., object]:
    """Wrap `function`, which mutates, so that it returns results and new contents instead.

    Several are a tuple. The new contents of a list are a list; an absent tensor has an empty one in
    its place.
    """
    mutated = [parameter.name for parameter in operator.signature.mutated]
    clone = functools.partial(torch.clone, memory_format=torch.contiguous_format)

    def run(*args: object, **kwargs: object) -> object:
        arguments = operator.arguments(args, kwargs)
        for name in mutated:
            arguments[name] = map_tensors(arguments[name], clone)
        positional, keywords = operator.split(arguments)
        returned = function(*positional, **keywords)
        results = () if returned is None else returned
        if isinstance(results, Tensor):
            results = (results,)
        written = (arguments[name] for name in mutated)
        made = (*results, *(torch.empty(0) if one is None else one for one in written))
        return made[0] if len(made) == 1 else made

    return run


def call_twin(operator: Operator, overload: OpOverload, arguments: Arguments) -> Value:
    """Call a twin, copy the new contents into the arguments, and return the operator's results.

    Args:
        operator: the operator of the twin.
        overload: the twin.
        arguments: the operator's arguments by name, encoded as the twin requires.
    """
    positional, keywords = operator.split(arguments)
    made = overload(*positional, **keywords)
    count = len(operator.signature.results)
    values = (made,) if count + len(operator.signature.mutated) == 1 else tuple(made)
    for parameter, value in zip(operator.signature.mutated, values[count:], strict=True):
        into = each_tensor(arguments[parameter.name])
        for tensor, contents in zip(into, each_tensor(value), strict=bool(into)):
            tensor.copy_(contents)
    results = values[:count]
    return None if not results else results[0] if count == 1 else results


class CallsTwins(TorchFunctionMode):
    """Redirects the calls of mutating operators that a reference makes to their twins.

    Args:
        only: the operators to redirect; all by default.
    """

    def __init__(self, only: Collection[Operator] | None = None) -> None:
        super().__init__()
        self._only = only

    def __torch_function__(
        self, func: Untyped, types: object, args: Value = (), kwargs: Value = None
    ) -> object:
        called = func.default if isinstance(func, OpOverloadPacket) else func
        operator = operator_behind(called) if isinstance(called, OpOverload) else None
        if operator is None or not operator.signature.mutated:
            return func(*args, **(kwargs or {}))
        if self._only is not None and operator not in self._only:
            return func(*args, **(kwargs or {}))
        return call_twin(operator, twin(operator), operator.arguments(args, kwargs or {}))


def without_mutation(program: ExportedProgram, operators: Collection[Operator]) -> ExportedProgram:
    """Return the program with the calls of `operators` that mutate made functional.

    Raises:
        ExportError: the program is already functionalized.
    """
    mutating = {operator for operator in operators if operator.signature.mutated}
    if not mutating:
        return program
    signature = copy.deepcopy(program.graph_signature)
    module = copy.deepcopy(program.graph_module)
    for part in module.modules():
        if not isinstance(part, torch.fx.GraphModule):
            continue
        for node in list(part.graph.nodes):
            operator = operator_of(node) if node.op == "call_function" else None
            if operator not in mutating:
                continue
            assert operator is not None
            if isinstance(node.target, HigherOrderOperator):
                raise ExportError(
                    f"{operator.name}: this ExportedProgram was functionalized already "
                    "(run_decompositions). Export it as torch.export.export returned it."
                )
            _replace(operator, node, signature if part is module else None)
        part.recompile()
    return updated(program, module, signature)


def _contents(value: Value) -> object:
    """Return what PyTorch knows of the new contents of an argument: see `functional`."""
    if value is None:
        return torch.empty(0, device="meta")
    if isinstance(value, list | tuple):
        return [one.meta["val"] for one in value]
    return value.meta["val"]


def _parts(graph: torch.fx.Graph, whole: Node, values: Sequence[object]) -> list[Node]:
    """Insert nodes that take the parts of a node's several values, and return them."""
    parts = []
    for position, value in enumerate(values):
        part = graph.call_function(python_operator.getitem, (whole, position))
        part.meta["val"] = value
        parts.append(part)
    return parts


def _replace(operator: Operator, node: Node, signature: Untyped) -> None:
    graph = node.graph
    results = len(operator.signature.results)
    arguments = operator.arguments(node.args, node.kwargs)
    written = [arguments[parameter.name] for parameter in operator.signature.mutated]
    returned = node.meta.get("val")
    values = () if returned is None else returned if results > 1 else (returned,)
    with graph.inserting_before(node):
        call = graph.call_function(twin(operator), node.args, node.kwargs)
        made = (*values, *map(_contents, written))
        call.meta = {**node.meta, "val": made[0] if len(made) == 1 else made}
        parts = [call] if len(made) == 1 else _parts(graph, call, made)
        for value, part in zip(written, parts[results:], strict=True):
            into: list[Value] = each_tensor(value)
            several = isinstance(value, list | tuple)
            made_for = _parts(graph, part, part.meta["val"]) if several else [part]
            for one, contents in zip(into, made_for, strict=bool(into)):
                copied = graph.call_function(torch.ops.aten.copy_.default, (one, contents))
                copied.meta["val"] = one.meta["val"]
    if results == 1:
        node.replace_all_uses_with(parts[0])
        if signature is not None:
            signature.replace_all_uses(node.name, parts[0].name)
    elif results > 1:
        for user in list(node.users):
            # A tuple of results is used only by `getitem`.
            chosen = parts[int(user.args[1])]  # type: ignore[arg-type]
            user.replace_all_uses_with(chosen)
            if signature is not None:
                signature.replace_all_uses(user.name, chosen.name)
            graph.erase_node(user)
    graph.erase_node(node)
