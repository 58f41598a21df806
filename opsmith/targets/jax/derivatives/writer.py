"""Write a graph of PyTorch's operators as Python that calls the functions of `package/aten.py`."""

from __future__ import annotations

import math
import operator as python_operator
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.fx import Node

from opsmith.compat.torch_ops import OpOverload, overload_schema
from opsmith.kernels import HOST
from opsmith.operators.core import registry
from opsmith.targets.jax.derivatives.model import Derivative, ReadsValuesError, UntranslatableError
from opsmith.targets.jax.library import obstacle

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
    torch.sym_sqrt: "math.sqrt",
    math.floor: "math.floor",
    math.ceil: "math.ceil",
}
# JAX manages devices and memory layouts itself.
_LAYOUT = ("device", "layout", "memory_format", "pin_memory", "non_blocking")


class Writer:
    """Writes a graph as Python.

    Args:
        found: the derivative that the graph belongs to; the operators that the graph calls are
            added to it.
        names: names of the graph's inputs.
    """

    def __init__(self, found: Derivative, names: Sequence[str]) -> None:
        self.found = found
        self.names = list(names)
        self.texts: dict[Node, str] = {}

    def body(self, graph: Any, outputs: Callable[[Sequence[str]], str]) -> list[str]:
        """Return the statements.

        Args:
            graph: the traced graph.
            outputs: converts the texts of the values that the graph returns to the text that the
                statements return.

        Raises:
            UntranslatableError: JAX has no equivalent for a node of the graph.
        """
        lines: list[str] = []
        rest = iter(self.names)
        taken = set(self.names)
        for node in graph.nodes:
            if node.op == "placeholder":
                self.texts[node] = next(rest)
            elif node.op == "output":
                returned = node.args[0]
                many = returned if isinstance(returned, list | tuple) else [returned]
                lines.append(f"return {outputs([self._text(item) for item in many])}")
            elif node.op == "call_function":
                name = node.name if node.name not in taken else f"{node.name}_"
                taken.add(name)
                lines.append(f"{name} = {self._call(node)}")
                self.texts[node] = name
            else:
                raise UntranslatableError(f"holds a constant tensor ({node.target})")
        return lines

    def _text(self, value: Any) -> str:
        if isinstance(value, Node):
            return self.texts[value]
        if isinstance(value, list | tuple):
            inner = ", ".join(self._text(item) for item in value)
            return f"[{inner}]"
        if isinstance(value, torch.dtype):
            return repr(str(value).removeprefix("torch."))
        if isinstance(value, float) and not math.isfinite(value):
            return f'float("{value}")'
        if value is None or isinstance(value, bool | int | float | str):
            return repr(value)
        raise UntranslatableError(f"passes {value!r}, which JAX does not have")

    def _call(self, node: Node) -> str:
        from opsmith.targets.jax.package import aten

        target: Any = node.target
        arguments = [self._text(item) for item in node.args]
        if target is python_operator.getitem:
            return f"{arguments[0]}[{arguments[1]}]"
        if target in _INFIX:
            return f"{arguments[0]} {_INFIX[target]} {arguments[1]}"
        if target is python_operator.neg:
            return f"-{arguments[0]}"
        if target in _CALLS:
            return f"{_CALLS[target]}({', '.join(arguments)})"
        keywords = [
            f"{name}={self._text(value)}"
            for name, value in node.kwargs.items()
            if name not in _LAYOUT
        ]
        if not isinstance(target, OpOverload):
            raise UntranslatableError(f"calls {target}, which has no translation to JAX")
        namespace, name = overload_schema(target).name.split("::")
        if namespace != "aten":
            return f"{self._operator(target)}({', '.join([*arguments, *keywords])})"
        if name == "sym_size":
            return f"{arguments[0]}.shape[{arguments[1]}]"
        if name == "sym_numel":
            return f"{arguments[0]}.size"
        if name == "_local_scalar_dense":
            raise ReadsValuesError
        known = getattr(aten, name, None)
        if not callable(known) or (name in ("index", "index_put") and _has_mask(node)):
            by = " by a mask" if known is not None else ""
            raise UntranslatableError(f"uses aten::{name}{by}, which has no translation to JAX")
        if target is torch.ops.aten.repeat_interleave.Tensor and "output_size" not in node.kwargs:
            raise UntranslatableError(
                "uses repeat_interleave without output_size, which XLA has to know: give it, as in "
                "rows.repeat_interleave(counts, output_size=len(columns))"
            )
        call = f"aten.{name}({', '.join([*arguments, *keywords])})"
        dtype = _promoted(node)
        return call if dtype is None else f"aten._to_copy({call}, dtype={self._text(dtype)})"

    def _operator(self, target: Any) -> str:
        for operator in registry.all_operators():
            if operator.overload is target:
                problem = obstacle(operator, operator.kernels.get(HOST))
                if problem is not None:
                    raise UntranslatableError(f"calls {operator.name}: {problem.rstrip('.')}")
                if operator not in self.found.calls:
                    self.found.calls.append(operator)
                return f'operators["{operator.name}"]'
        raise UntranslatableError(f"calls {target}, which has no translation to JAX")


def _promoted(node: Node) -> torch.dtype | None:
    """Return a result's dtype if JAX's own promotion may differ from it, else `None`."""
    made = node.meta.get("val")
    if not isinstance(made, Tensor) or "dtype" in node.kwargs:
        return None
    values = [one.meta.get("val") for one in node.all_input_nodes]
    given = {value.dtype for value in values if isinstance(value, Tensor)}
    floats = {dtype for dtype in given if dtype.is_floating_point or dtype.is_complex}
    wanted = made.dtype
    if not (wanted.is_floating_point or wanted.is_complex):
        return None
    return wanted if wanted not in given or floats != {wanted} else None


def _has_mask(node: Node) -> bool:
    indices: Any = node.args[1]
    return any(
        item is not None and item.meta["val"].dtype in (torch.bool, torch.uint8) for item in indices
    )
