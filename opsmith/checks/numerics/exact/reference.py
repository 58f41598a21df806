"""Run a reference with residues beside every tensor of real numbers."""

from __future__ import annotations

import functools
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from opsmith.checks.numerics.exact import arrays, products, reductions
from opsmith.checks.numerics.exact.arrays import Array
from opsmith.checks.numerics.exact.elementwise import HANDLERS, MOVES, constant
from opsmith.checks.numerics.rounding import PARTS
from opsmith.compat.torch_ops import overload_schema
from opsmith.compat.torch_tracing import TorchDispatchMode, all_decompositions
from opsmith.operators.core.arguments import tensors_in

# These two register what they have with the handlers.
assert products and reductions

_REALS = (torch.float16, torch.bfloat16, torch.float32)
_OPSMITH = Path(__file__).parents[3]
_TORCH = Path(torch.__file__).parent


class LeavesFieldError(Exception):
    """A reference uses an operator that the field has not; the message names it and the line."""


class ExactReference(TorchDispatchMode):
    """A dispatch mode that computes residues beside every result in double precision.

    Residues belong to memory, so that views of a tensor have those of its elements. A tensor
    without any holds constants of the reference. Every real dtype becomes float64, since nothing is
    rounded.
    """

    def __init__(self) -> None:
        super().__init__()
        # The memory of tensors by address, each kept so that no other tensor gets its address.
        self._known: dict[int, tuple[Tensor, Tensor, Tensor]] = {}
        self._within: list[Any] = []

    # --- tensors and their residues ----------------------------------------------------------

    def tensor(self, array: Array) -> Tensor:
        """Return a new tensor with the residues of an array."""
        whole = arrays.contiguous(array)
        if whole.values is array.values:
            whole = whole.map(Tensor.clone)
        self._remember(whole)
        return whole.values

    def _remember(self, whole: Array) -> None:
        if whole.values.numel():
            address = whole.values.untyped_storage().data_ptr()
            self._known[address] = (whole.values, whole.residues.flatten(), whole.doubts.flatten())

    def array(self, value: Any) -> Array:
        """Return the numbers of a tensor, or of a number of the reference."""
        if not isinstance(value, Tensor):
            return constant(value)
        if value.is_complex():
            raise LeavesFieldError("complex numbers")
        if value.dtype != torch.float64:
            return arrays.constants(value)
        if not value.numel():
            return arrays.empty(value.shape)
        _, residues, doubts = self._memory(value)
        place = (value.shape, value.stride(), value.storage_offset())
        return Array(
            value.detach(), torch.as_strided(residues, *place), torch.as_strided(doubts, *place)
        )

    def _memory(self, value: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        storage = value.untyped_storage()
        address = storage.data_ptr()
        if address not in self._known:
            count = storage.nbytes() // 8
            whole = torch.empty(0, dtype=torch.float64).set_(storage, 0, (count,))  # type: ignore[call-overload]
            found = arrays.constants(whole)
            self._known[address] = (whole, found.residues, found.doubts)
        return self._known[address]

    # --- operators ---------------------------------------------------------------------------

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Compute an operator's results and their residues."""
        args = _mapped(args, _widened)
        named = {key: _mapped(value, _widened) for key, value in (kwargs or {}).items()}
        traits = _traits(func)
        if traits.is_view:
            return func(*args, **named)
        dtypes = {leaf.dtype for leaf in tensors_in((args, *named.values()))}
        if any(dtype.is_complex for dtype in dtypes):
            self._refuse(func, "complex numbers")
        if traits.is_random:
            self._refuse(func, "random numbers")
        if torch.float64 not in dtypes:
            return func(*args, **named)
        if traits.is_mutable:
            return self._write(func, args, named)
        return self._compute(func, args, named)

    def _compute(self, func: Any, args: Any, named: dict[str, Any]) -> Any:
        name = _traits(func).name
        if name in HANDLERS:
            found = HANDLERS[name](self, *args, **named)
            if found is NotImplemented:
                self._refuse(func)
            return _mapped(found, lambda one: self.tensor(one) if isinstance(one, Array) else one)
        if name in MOVES:
            return self._move(func, args, named)
        # An operator without a formula of its own may be composed of others.
        formula = PARTS.get(func.overloadpacket) or all_decompositions().get(func, func.decompose)
        if func in self._within or len(self._within) > 20:
            self._refuse(func)
        self._within.append(func)
        try:
            with self:
                found = formula(*args, **named)
        finally:
            self._within.pop()
        if found is NotImplemented:
            self._refuse(func)
        return found

    def _move(self, func: Any, args: Any, named: dict[str, Any]) -> Any:
        """Move residues as an operator moves elements."""
        planes: list[Any] = []
        for part in ("values", "residues", "doubts"):

            def plane(leaf: Any, part: str = part) -> Any:
                if isinstance(leaf, Tensor) and leaf.dtype == torch.float64:
                    return getattr(self.array(leaf), part)
                return leaf

            own = {key: _mapped(value, plane) for key, value in named.items()}
            planes.append(func(*_mapped(args, plane), **own))
        if isinstance(planes[0], Tensor):
            return self.tensor(Array(*planes))
        return type(planes[0])(self.tensor(Array(*each)) for each in zip(*planes, strict=True))

    def _write(self, func: Any, args: Any, named: dict[str, Any]) -> Any:
        """Write the results of an operator, and their residues, into its first argument."""
        space, _, name = overload_schema(func).name.partition("::")
        target = args[0]
        if name == "copy_":
            found = self.array(args[1])
        elif name in ("fill_", "zero_"):
            found = self.array(args[1] if name == "fill_" else 0)
        elif name.endswith("_") and not named.get("out"):
            packet = getattr(getattr(torch.ops, space), name.removesuffix("_"), None)
            pure = (
                getattr(packet, func.name().partition(".")[2] or "default", None)
                if packet is not None
                else None
            )
            if pure is None:
                self._refuse(func)
            found = self.array(self._compute(pure, args, named))
        else:
            self._refuse(func)
        if target.dtype != torch.float64:
            target.copy_(found.values)
            return target
        into = self.array(target)
        if target.numel():
            found = found.map(lambda plane: plane.expand(target.shape).clone())
            into.residues.copy_(found.residues)
            into.doubts.copy_(found.doubts)
            target.detach().copy_(found.values)
        return target

    def _refuse(self, func: Any, what: str = "") -> Any:
        name = _traits(func).name
        raise LeavesFieldError(f"{what + ' in ' if what else ''}{name!r}{_line()}")


@dataclass(frozen=True)
class _Traits:
    """Holds what an operator of PyTorch's does, so that its schema is read only once."""

    name: str
    is_view: bool
    is_mutable: bool
    is_random: bool


@functools.cache
def _traits(func: Any) -> _Traits:
    schema = overload_schema(func)
    aliases = [one.alias_info for one in schema.returns if one.alias_info is not None]
    return _Traits(
        name=schema.name.partition("::")[2],
        is_view=bool(aliases) and not any(alias.is_write for alias in aliases),
        is_mutable=schema.is_mutable,
        is_random=torch.Tag.nondeterministic_seeded in func.tags,
    )


def _mapped(value: Any, change: Callable[[Any], Any]) -> Any:
    """Return an argument or a result with `change` applied to it, or to all that a list holds.

    PyTorch's own function for trees takes longer than most operators do.
    """
    if isinstance(value, list | tuple):
        items = [_mapped(item, change) for item in value]
        return items if isinstance(value, list) else tuple(items)
    return change(value)


def _widened(value: Any) -> Any:
    return torch.float64 if isinstance(value, torch.dtype) and value in _REALS else value


def _line() -> str:
    """Return the innermost line of the user's that calls the operator, as a part of a message."""
    for frame in reversed(traceback.extract_stack()):
        path = Path(frame.filename)
        if not (path.is_relative_to(_OPSMITH) or path.is_relative_to(_TORCH)) and path.is_file():
            return f", at {frame.filename}:{frame.lineno}"
    return ""
