"""Trace a module, or read an ExportedProgram, into the `Model` that targets accept."""

from __future__ import annotations

import builtins
import functools
import inspect
import math
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext

import torch
from torch import SymFloat, SymInt, Tensor, nn
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind

from opsmith.compat import torch_pytree as pytree
from opsmith.compat.patch import Patch
from opsmith.compat.torch_ops import OpOverload
from opsmith.errors import DifferentiationError, ExportError
from opsmith.operators.core import registry
from opsmith.targets.exporting.artifact import unnamed_size
from opsmith.targets.exporting.model import Model
from opsmith.untyped import Args, Arguments, Value

#: A block in which ``torch.einsum`` of three tensors contracts from left to right. opt_einsum,
#: which is installed with JAX, would choose the order by the sizes, and PyTorch would turn all
#: sizes into numbers for it.
_einsum_in_order = Patch(lambda: torch.backends.opt_einsum, "enabled", lambda _: False)


def prepare(
    model: nn.Module | ExportedProgram,
    args: Sequence[object] | None = None,
    kwargs: Arguments | None = None,
    dynamic_shapes: Value = None,
) -> Model:
    """Return a model in the form that targets accept.

    Raises:
        ExportError: the model cannot be traced (in PyTorch's words), or the example is missing.
    """
    if isinstance(model, ExportedProgram):
        _refuse_confused(model)
        model = _without_out_variants(model)
        if args is None and kwargs is None:
            if model.example_inputs is None:
                raise ExportError("the ExportedProgram carries no example inputs; pass args")
            args, kwargs = model.example_inputs
        return Model(model, None, tuple(args or ()), dict(kwargs or {}), _size_names(model))
    if args is None:
        raise ExportError("exporting a module needs example arguments: export(model, (x,), …)")
    args, kwargs = _told_apart(model, tuple(args), dict(kwargs or {}))
    try:
        with _einsum_in_order() if dynamic_shapes else nullcontext():
            try:
                program = torch.export.export(model, args, kwargs, dynamic_shapes=dynamic_shapes)
            except DifferentiationError:
                # An exported program does not record gradients, so trace again under `no_grad`.
                with torch.no_grad():
                    program = torch.export.export(
                        model, args, kwargs, dynamic_shapes=dynamic_shapes
                    )
    except Exception as error:
        hint = ""
        if "specialized it to be a constant (1)" in str(error):
            hint = "\nThe example has size 1 there; give one of size 2, which PyTorch does not fix."
        elif "Constraints violated" in str(error):
            hint = (
                "\nA declaration may relate sizes (2*C, where=…): name them by that relation, as "
                'in 2*Dim("c"), or pass Dim.AUTO, which keeps whatever relation there is. PyTorch '
                "takes a size that may change for other than 1: where a guard ends in != 1, begin "
                'where that is so, as in Dim("t", min=9) for (t + 7)//8.'
            )
        raise ExportError(
            f"torch.export.export could not trace {type(model).__name__}:\n{error}{hint}"
        ) from error
    program = _without_out_variants(program)
    given = _dim_names(program, model, args, kwargs, dynamic_shapes)
    return Model(program, model, args, kwargs, _size_names(program) | given)


def _without_out_variants(program: ExportedProgram) -> ExportedProgram:
    """Let a program call operators and copy their results, in place of calling `Operator.out`."""
    for node in program.graph.nodes:
        named = isinstance(node.target, OpOverload) and node.target.name().rpartition(".")
        if named and named[2] == "out" and registry.find(named[0]) is not None:
            functional: ExportedProgram = program.run_decompositions({})
            return functional
    return program


def _told_apart(
    model: nn.Module, args: Args, kwargs: dict[str, object]
) -> tuple[Args, dict[str, Value]]:
    """Return the example with repeated tensors, and tensors of the model, replaced by copies.

    PyTorch's tracers identify a tensor by its object: one object given for two inputs, or for an
    input and a parameter, becomes one input that is read for both.
    """
    seen = {id(tensor) for tensor in (*model.parameters(), *model.buffers())}

    def apart(leaf: object) -> object:
        if not isinstance(leaf, Tensor):
            return leaf
        if id(leaf) in seen:
            return leaf.detach().clone().requires_grad_(leaf.requires_grad)
        seen.add(id(leaf))
        return leaf

    return pytree.tree_map(apart, args), pytree.tree_map(apart, kwargs)


def _refuse_confused(program: ExportedProgram) -> None:
    """Refuse a program that was traced with one tensor for two inputs, and reads only one."""
    leaves = pytree.tree_leaves(program.example_inputs)
    specs = [s for s in program.graph_signature.input_specs if s.kind is InputKind.USER_INPUT]
    if len(leaves) != len(specs):
        return
    unread = {node.name for node in program.graph.nodes if not node.users}
    names: dict[int, list[str]] = {}
    for leaf, spec in zip(leaves, specs, strict=True):
        if isinstance(leaf, Tensor):
            names.setdefault(id(leaf), []).append(spec.arg.name)
    for alike in names.values():
        if len(alike) > 1 and unread.intersection(alike):
            raise ExportError(
                f"the ExportedProgram was traced with one tensor for the inputs "
                f"{' and '.join(map(repr, alike))}, and torch.export reads one input for all of "
                "them. Trace it with a copy for each: example.clone()"
            )


def _dim_names(
    program: ExportedProgram,
    model: nn.Module,
    args: Args,
    kwargs: dict[str, object],
    dynamic_shapes: object,
) -> dict[str, str]:
    """Return the names that the user gave to sizes, by PyTorch's symbols for them."""
    asked = dynamic_shapes
    if isinstance(asked, dict):
        # Shapes in a dict are by parameter name, in any order.
        given = inspect.signature(model.forward).bind(*args, **kwargs).arguments
        asked = [asked.get(name) for name in given]
    leaves = pytree.tree_leaves(asked, is_leaf=lambda item: item is None or _is_shape(item))
    specs = program.graph_signature.input_specs
    user = {spec.arg.name for spec in specs if spec.kind is InputKind.USER_INPUT}
    values = [node.meta.get("val") for node in program.graph.nodes if node.name in user]
    names: dict[str, str] = {}
    for leaf, value in zip(leaves, values, strict=False):
        if not isinstance(value, Tensor) or not leaf or len(leaves) != len(values):
            continue
        sizes: Sequence[object] = value.shape
        for axis, dim in leaf.items() if isinstance(leaf, dict) else enumerate(leaf):
            # `2*dim + 1` is derived from `dim`, and `dim` itself may not be the size of any axis.
            own = getattr(dim, "root", dim)
            name = own if isinstance(own, str) else getattr(own, "__name__", "")
            if name.isidentifier():  # `[None]` may be of a list of tensors without dimensions
                expression = getattr(getattr(sizes[axis], "node", None), "expr", None)
                symbols = getattr(expression, "free_symbols", ())
                if len(symbols) == 1:
                    names.setdefault(str(next(iter(symbols))), name)
    return names


def _size_names(program: ExportedProgram) -> dict[str, str]:
    """Return readable names for unnamed sizes: ``x_dim_0`` instead of PyTorch's ``s77``."""
    names: dict[str, str] = {}
    for node in program.graph.find_nodes(op="placeholder"):
        value = node.meta.get("val")
        sizes: Sequence[object] = value.shape if isinstance(value, Tensor) else ()
        for axis, size in enumerate(sizes):
            if not isinstance(size, int):
                names.setdefault(str(size), unnamed_size(node.name, axis))
    return names


def _is_shape(item: object) -> bool:
    """Return whether `item` gives the sizes of one tensor: ``{0: dim}``, ``(dim, None)``."""
    if isinstance(item, dict):
        return all(isinstance(axis, int) for axis in item)
    return isinstance(item, tuple | list) and all(
        part is None or isinstance(part, int | str) or hasattr(part, "__name__") or _is_hint(part)
        for part in item
    )


def _is_hint(part: object) -> bool:
    return type(part).__name__ == "_DimHint"


_TRAINS_OTHERWISE = (
    *(nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d),
    *(nn.AlphaDropout, nn.FeatureAlphaDropout),
    *(nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm),
    *(nn.InstanceNorm1d, nn.InstanceNorm2d, nn.InstanceNorm3d),
    nn.RNNBase,
)


@contextmanager
def evaluating(model: nn.Module | ExportedProgram, say: Callable[[str], None]) -> Iterator[None]:
    """Keep the model in evaluation mode during the export."""
    training = [m for m in model.modules() if m.training] if isinstance(model, nn.Module) else []
    if any(isinstance(module, _TRAINS_OTHERWISE) for module in training):
        say(f"{type(model).__name__} is in training mode; it is exported in evaluation mode")
    for module in training:
        module.training = False
    try:
        yield
    finally:
        for module in training:
            module.training = True


class _KeptThread(threading.local):
    """The number of `kept_sizes` blocks that this thread is in."""

    blocks = 0


_thread = _KeptThread()


@contextmanager
def kept_sizes() -> Iterator[None]:
    """Make ``len`` of a tensor, and ``math.sqrt`` of a size, return symbols in a block.

    References often contain ``x.new_zeros(len(y))`` or ``scores / math.sqrt(q.shape[-1])``, and
    Python requires both functions to return numbers. In TorchScript's traces sizes are tensors.
    Other threads are not affected. See also `_einsum_in_order`.
    """
    with _len(), _sqrt(), _einsum_in_order():
        _thread.blocks += 1
        try:
            yield
        finally:
            _thread.blocks -= 1


def _keeping_len(plain: Callable[[object], int]) -> Callable[[object], object]:
    @functools.wraps(plain)
    def len(value: object, /) -> object:
        if _thread.blocks and isinstance(value, Tensor) and value.dim():
            return value.size(0)
        return plain(value)

    return len


def _keeping_sqrt(plain: Callable[[object], float]) -> Callable[[object], object]:
    @functools.wraps(plain)
    def sqrt(value: object, /) -> object:
        if _thread.blocks and isinstance(value, SymInt | SymFloat):
            return torch.sym_sqrt(value)
        if _thread.blocks and isinstance(value, Tensor) and torch.jit.is_tracing():
            return value.sqrt()
        return plain(value)

    return sqrt


# Replace Python's functions themselves, because a reference may call them at any depth, also in
# functions of other modules, and ``__len__`` and ``__float__`` may return only Python numbers.
_len = Patch(lambda: builtins, "len", _keeping_len)
_sqrt = Patch(lambda: math, "sqrt", _keeping_sqrt)
