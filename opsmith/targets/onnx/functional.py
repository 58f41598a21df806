"""Mutating operators made functional: ONNX has no values that change.

For an operator that writes into arguments there is a twin, which returns the new contents beside
the results. A call of the operator becomes a call of the twin and a copy back, which PyTorch's own
functionalization understands, through views too.
"""

from __future__ import annotations

import copy
import dataclasses
import operator as python_operator
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.export import ExportedProgram
from torch.fx import Node
from torch.library import Library

from opsmith.errors import ExportError
from opsmith.operators import Operator
from opsmith.signature.model import Result, TensorType
from opsmith.targets.model import Model, operator_of

_NAMESPACE = "opsmith_functional"


# By operator name: a registration lasts as long as its Library, and an operator may be declared
# again.
_TWINS: dict[str, tuple[Operator, Library]] = {}


def twin(operator: Operator) -> torch._ops.OpOverload:
    """The functional twin: takes the operator's arguments, returns results and new contents."""
    signature = operator.signature
    name = f"{signature.namespace}__{signature.name}"
    known, library = _TWINS.get(operator.name, (None, None))
    if known is not operator:
        if library is not None:
            library._destroy()
        written = tuple(Result(p.name, _tensor(p.type)) for p in signature.mutated)
        pure = dataclasses.replace(
            signature,
            namespace=_NAMESPACE,
            name=name,
            parameters=tuple(dataclasses.replace(p, mutated=False) for p in signature.parameters),
            results=(*signature.results, *written),
        )
        library = Library(_NAMESPACE, "FRAGMENT")
        library.define(pure.schema(), tags=(torch.Tag.needs_contiguous_strides,))
        run = functional(operator, operator)
        library.impl(name, lambda *a, **k: _as_schema(run(*a, **k)), "CompositeExplicitAutograd")
        torch.library.register_fake(
            pure.qualname, lambda *a, **k: _as_schema(run(*a, **k)), lib=library
        )
        _TWINS[operator.name] = operator, library
    overload: torch._ops.OpOverload = getattr(getattr(torch.ops, _NAMESPACE), name).default
    return overload


def _as_schema(results: tuple[Tensor, ...]) -> Any:
    return results[0] if len(results) == 1 else results


def _tensor(type_: Any) -> TensorType:
    assert isinstance(type_, TensorType)
    return type_


def functional(
    operator: Operator, function: Callable[..., Any]
) -> Callable[..., tuple[Tensor, ...]]:
    """`function`, which mutates, as one that returns results and new contents."""
    mutated = [parameter.name for parameter in operator.signature.mutated]

    def run(*args: Any, **kwargs: Any) -> tuple[Tensor, ...]:
        arguments = operator.arguments(args, kwargs)
        for name in mutated:
            value = arguments[name]
            if value is None:
                raise ExportError(
                    f"{operator.name}: its mutated argument {name!r} is None, which has no place "
                    "among a node's outputs"
                )
            arguments[name] = value.clone(memory_format=torch.contiguous_format)
        positional, keywords = operator.split(arguments)
        returned = function(*positional, **keywords)
        results = () if returned is None else returned
        if isinstance(results, Tensor):
            results = (results,)
        return (*results, *(arguments[name] for name in mutated))

    return run


def without_mutation(model: Model) -> ExportedProgram:
    """The program with every call of a mutating operator made functional.

    Raises:
        ExportError: the program was functionalized already.
    """
    program = model.program
    if not any(operator.signature.mutated for operator in model.operators()):
        return program
    signature = copy.deepcopy(program.graph_signature)
    module = copy.deepcopy(program.graph_module)
    for part in module.modules():
        if not isinstance(part, torch.fx.GraphModule):
            continue
        for node in list(part.graph.nodes):
            operator = operator_of(node) if node.op == "call_function" else None
            if operator is None or not operator.signature.mutated:
                continue
            if isinstance(node.target, torch._ops.HigherOrderOperator):
                raise ExportError(
                    f"{operator.name}: this ExportedProgram was functionalized already "
                    "(run_decompositions). Export it as torch.export.export returned it."
                )
            _replace(operator, node, signature if part is module else None)
        part.recompile()
    return program._update(module, signature)


def _replace(operator: Operator, node: Node, signature: Any) -> None:
    graph = node.graph
    results = len(operator.signature.results)
    arguments = operator.arguments(node.args, node.kwargs)
    written = [arguments[parameter.name] for parameter in operator.signature.mutated]
    for value, parameter in zip(written, operator.signature.mutated, strict=True):
        if value is None:
            raise ExportError(
                f"{operator.name}: its mutated argument {parameter.name!r} is None, which has no "
                "place among a node's outputs"
            )
    returned = node.meta.get("val")
    values = () if returned is None else returned if results > 1 else (returned,)
    with graph.inserting_before(node):
        call = graph.call_function(twin(operator), node.args, node.kwargs)
        made = (*values, *(v.meta["val"] for v in written))
        call.meta = {**node.meta, "val": _as_schema(made)}
        parts = [call] if len(made) == 1 else []
        for position, value in enumerate(made if len(made) > 1 else ()):
            part = graph.call_function(python_operator.getitem, (call, position))
            part.meta["val"] = value
            parts.append(part)
        for value, part in zip(written, parts[results:], strict=True):
            copied = graph.call_function(torch.ops.aten.copy_.default, (value, part))
            copied.meta["val"] = value.meta["val"]
    if results == 1:
        node.replace_all_uses_with(parts[0])
        if signature is not None:
            signature.replace_all_uses(node.name, parts[0].name)
    elif results > 1:
        for user in list(node.users):
            # Several results are only ever taken apart.
            chosen = parts[int(user.args[1])]  # type: ignore[arg-type]
            user.replace_all_uses_with(chosen)
            if signature is not None:
                signature.replace_all_uses(user.name, chosen.name)
            graph.erase_node(user)
    graph.erase_node(node)
