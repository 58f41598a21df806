"""Trace with inputs without values: comparisons of their sizes and numbers become conditions."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import SymFloat, SymInt, Tensor
from torch.fx.experimental.proxy_tensor import get_proxy_mode
from torch.overrides import TorchFunctionMode

from opsmith.compat.torch_ops import OpOverload, overload_schema
from opsmith.compat.torch_pytree import tree_leaves, tree_map_only
from opsmith.compat.torch_symbols import NotingShapeEnv, is_internal, printed
from opsmith.compat.torch_tracing import fake_mode, named_source
from opsmith.signature.model import Signature
from opsmith.signature.parameters import Parameter
from opsmith.signature.sizes.expressions import Scalar
from opsmith.signature.sizes.shapes import Fixed


class KeptNumbers(TorchFunctionMode):
    """Keeps symbolic numbers symbolic in calls of operators whose schema declares ``float``.

    PyTorch would replace them by their values, since its dispatcher supports only symbolic
    integers. The operator is called with the values, and its node in the graph gets the symbols.
    """

    def __torch_function__(
        self,
        func: Any,
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        del types
        kwargs = kwargs or {}
        if func is Tensor.unfold and any(isinstance(arg, SymInt) for arg in args):
            return _unfold(*args, **kwargs)
        if func is Tensor.tolist:
            return _listed(*args)
        if not isinstance(func, OpOverload) or not _hold_symbols((args, kwargs)):
            return func(*args, **kwargs)
        plain_args, plain_kwargs = tree_map_only(
            SymFloat, lambda number: float(number.node.hint), (args, kwargs)
        )
        returned = func(*plain_args, **plain_kwargs)
        tracing = get_proxy_mode()
        if tracing is not None:
            node = next(n for n in reversed(tracing.tracer.graph.nodes) if n.target is func)
            declared = overload_schema(func).arguments
            named = {one.name: value for one, value in zip(declared, args, strict=False)}
            _give_symbols(node, declared, {**named, **kwargs}, tracing.tracer)
        return returned


def _unfold(x: Tensor, dimension: int, size: Any, step: Any) -> Tensor:
    """Replace `Tensor.unfold`, whose schema allows no symbols for the windows' size and step."""
    last = x.movedim(dimension, -1)
    first = torch.arange((x.shape[dimension] - size) // step + 1) * step
    windows = last[..., first[:, None] + torch.arange(size)]
    return windows.movedim(-2, dimension if dimension >= 0 else dimension - 1)


def _listed(x: Tensor) -> Any:
    """Replace `Tensor.tolist`, which counts elements where `torch.func` wraps rows of a tensor.

    PyTorch then complains of symbolic sizes, and the reference reads values.
    """
    return [_listed(item) for item in x] if x.dim() else x.item()


def _hold_symbols(values: Any) -> bool:
    return any(isinstance(value, SymFloat) for value in tree_leaves(values))


def _give_symbols(
    node: Any, declared: Sequence[Any], given: Mapping[str, Any], tracer: Any
) -> None:
    """Put the symbols of a call into its node, which omits arguments that equal their defaults.

    Args:
        node: the node of the call.
        declared: the arguments in the operator's schema.
        given: the call's arguments by name.
        tracer: maps the symbols to their nodes.
    """
    for place, parameter in enumerate(declared):
        value = given.get(parameter.name)
        if not _hold_symbols(value):
            continue
        value = tree_map_only(SymFloat, lambda number: tracer.unwrap_proxy(number).node, value)
        if parameter.kwarg_only or parameter.name in node.kwargs:
            node.update_kwarg(parameter.name, value)
            continue
        left_out = [other.default_value for other in declared[len(node.args) : place + 1]]
        node.args = (*node.args, *left_out)
        node.update_arg(place, value)


class Symbols:
    """Inputs without values, with symbolic sizes and numbers, and the comparisons made of them."""

    def __init__(self) -> None:
        self.env = NotingShapeEnv(specialize_zero_one=False, duck_shape=False)
        # A tensor with values is refused by name when the graph is written.
        self.mode = fake_mode(shape_env=self.env, allow_non_fake_inputs=True)
        # Caching an operator's results would add further comparisons of its sizes.
        self.mode.cache_enabled = False

    def inputs(
        self, parameters: Mapping[str, Parameter], arguments: Mapping[str, Any]
    ) -> tuple[list[str], list[Any]]:
        """Return names and values of the inputs, in the order of `inputs_of` in the package."""
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
        from torch.fx.experimental.symbolic_shapes import DimDynamic, StatelessSymbolicContext

        source, dynamic = named_source(name), DimDynamic.DYNAMIC
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

    def conditions(self, signature: Signature) -> list[tuple[str, bool]]:
        """Return the conditions on sizes and numbers that hold on this path, as Python code.

        Each comes with whether only PyTorch's internals depend on it.
        """
        sizes = _numbers_that_are_sizes(signature)
        places: dict[str, str] = {}
        for symbol, sources in self.env.var_to_sources.items():
            name: Any = sources[0].name
            name = name() if callable(name) else name  # A method before PyTorch 2.12.
            match = re.fullmatch(r"(\w+)(?:\.size\(\)\[(\d+)\])?", name)
            if match is not None:
                size = "" if match[2] is None else f".shape[{match[2]}]"
                places[str(symbol)] = f"{match[1]}{size}"
        found: dict[str, bool] = {}
        for guard in self.env.guards:
            free = {str(symbol) for symbol in guard.expr.free_symbols}
            if not free <= set(places):
                continue  # A condition on strides or offsets, which are always the same in JAX.
            text = printed(guard.expr)
            of_sizes = all(".shape" in places[name] or places[name] in sizes for name in free)
            minor = (_is_stride(guard.expr) and of_sizes) or _is_internal(guard)
            for name in sorted(free, key=len, reverse=True):
                text = re.sub(rf"\b{name}\b", places[name], text)
            found[text] = minor
        return list(found.items())


def _numbers_that_are_sizes(signature: Signature) -> frozenset[str]:
    """Return the inputs that are numbers and that a shape uses unchanged as a size."""
    return frozenset(
        dim.expression.parameter
        if dim.expression.index is None
        else f"{dim.expression.parameter}_{dim.expression.index}"
        for owner in signature.owners
        for dim in owner.dims
        if isinstance(dim, Fixed) and isinstance(dim.expression, Scalar)
    )


def _is_stride(expression: Any) -> bool:
    """Return whether a condition compares strides, which are products of max(1, size)."""
    import sympy  # type: ignore[import-untyped]

    return any(type(part).__name__ == "Max" for part in sympy.preorder_traversal(expression))


def _is_internal(guard: Any) -> bool:
    """Return whether a comparison is made by PyTorch's operators, which took their general path.

    The graph then also holds for other sizes. An equation is an exception: a symbol that equals a
    number is replaced by the number.
    """
    import sympy

    location = str(getattr(guard.sloc, "framework_loc", ""))
    return not isinstance(guard.expr, sympy.Eq) and (is_internal(location) or __file__ in location)
