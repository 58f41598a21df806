"""Run a reference in double precision, also where it asks for single precision itself.

A reference of half numbers often computes in single precision: ``(a.float() @ b.float().T)``. If
the conversion took place in a run in double precision, the results would have rounding errors, and
small changes of the arguments would vanish in them. A conversion to single precision that does not
narrow the case's own numbers is therefore a conversion to double precision there. Conversions that
narrow (``x.half()`` of single precision) define the function, and are left as they are.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from opsmith.checks.numerics.sensitivity import Evaluate
from opsmith.compat.torch_pytree import tree_leaves
from opsmith.compat.torch_tracing import TorchDispatchMode
from opsmith.operators.core.arguments import every_tensor_in, map_tensors

_aten = torch.ops.aten
_DOUBLE = (torch.float64, torch.complex128)
#: Operators that return the indices of the elements that they choose along a dimension.
CHOICES = (
    *(_aten.argmin, _aten.argmax, _aten.min, _aten.max, _aten.topk, _aten.sort, _aten.kthvalue),
    _aten.median,
)
_SINGLE = {torch.float32: torch.float64, torch.complex64: torch.complex128}
WIDE = {
    **_SINGLE,
    torch.float16: torch.float64,
    torch.bfloat16: torch.float64,
    torch.complex32: torch.complex128,
    torch.float8_e4m3fn: torch.float64,
    torch.float8_e5m2: torch.float64,
}
"""The dtype in double precision, by dtype."""


class DoubleRun:
    """A reference that is run in double precision.

    If the reference cannot be run so (it reads the bits of its numbers, or requires a dtype), its
    conversions take place as they are written.

    Args:
        evaluate: function that returns the results for arguments by name.
        wide: the case's arguments in double precision.
        own: the case's arguments in its own dtypes.
    """

    def __init__(self, evaluate: Evaluate, wide: Mapping[str, Any], own: Mapping[str, Any]) -> None:
        self._evaluate = evaluate
        self._wide = wide
        self._has_double = any(tensor.dtype in _DOUBLE for _, tensor in every_tensor_in(own))
        self._kept = {} if self._has_double else _SINGLE
        self._asked: set[torch.dtype] | None = None
        self.chooses = True  # among equal numbers, as a sort does, until a run says no

    def __call__(self, arguments: Mapping[str, Any]) -> list[Tensor]:
        """Return the results, with every number in double precision that is not narrowed."""
        if self._asked is not None:
            if self._asked.isdisjoint(self._kept):
                return self.as_written(arguments)
            with _Conversions(self._kept):
                return self.as_written(arguments)
        try:
            with _Conversions(self._kept, bits=self._has_double) as conversions:
                results = self.as_written(arguments)
        except Exception:
            with _Conversions({}, bits=self._has_double):
                results = self.as_written(arguments)
            self._asked = set()
            return results
        self._asked, self.chooses = conversions.asked, conversions.chose
        return results

    def as_written(self, arguments: Mapping[str, Any]) -> list[Tensor]:
        """Return the results if every conversion takes place as it is written.

        The arguments are copied: a reference that computes in ``x.float()`` writes into a copy of
        its half numbers, and here ``to`` gives it the argument itself.
        """
        own = {name: map_tensors(value, Tensor.clone) for name, value in arguments.items()}
        with double_by_default():
            return self._evaluate(own)

    @property
    def converts(self) -> bool:
        """Return whether the reference asks for single precision that narrows no number."""
        return not self._found.isdisjoint(self._kept)

    @property
    def narrows(self) -> bool:
        """Return whether the reference asks for less precision, and rounds its numbers so."""
        return not self._found <= self._kept.keys()

    def smooth(self, values: list[Tensor]) -> tuple[Evaluate, list[Tensor]]:
        """Return an evaluation without narrowing, and its results for the case's arguments.

        Narrowing hides small changes of the arguments. If nothing is narrowed, or the reference
        cannot be run without it, return this evaluation and `values`.
        """
        if not self.narrows:
            return self, values

        def evaluate(arguments: Mapping[str, Any]) -> list[Tensor]:
            with _Conversions(WIDE):
                return self.as_written(arguments)

        with contextlib.suppress(Exception):
            found = evaluate(self._wide)
            if [one.shape for one in found] == [one.shape for one in values]:
                return evaluate, found
        return self, values

    @property
    def _found(self) -> set[torch.dtype]:
        """Return the dtypes that the reference asks for, as far as it can be run without them."""
        if self._asked is None:
            with contextlib.suppress(Exception):
                self(self._wide)
        return self._asked or set()


class _Conversions(TorchDispatchMode):
    """A dispatch mode that replaces the dtypes which operators are asked for.

    Args:
        replaced: the dtype in place of each dtype.
        bits: whether a number in double precision has the bits that an operator may ask for.

    Attributes:
        asked: the floating-point dtypes below double precision that operators were asked for.
    """

    def __init__(self, replaced: Mapping[torch.dtype, torch.dtype], *, bits: bool = False) -> None:
        super().__init__()
        self._replaced = replaced
        self._bits = bits
        self.asked: set[torch.dtype] = set()
        self.chose = False

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Call an operator with other dtypes."""
        if (
            func is _aten.view.dtype
            and not self._bits
            and (args[0].dtype in _DOUBLE or args[1] in self._replaced)
        ):
            raise _BitsError
        self.chose |= func.overloadpacket in CHOICES
        args = [self._dtype(value) for value in args]
        named = {name: self._dtype(value) for name, value in (kwargs or {}).items()}
        returned = func(*args, **named)
        # No mode sees `torch.tensor` make its numbers. With another default dtype, it makes them in
        # single precision unasked, and `double_by_default` lets it make them again.
        if func is _aten.lift_fresh.default and torch.get_default_dtype() in _DOUBLE:
            return returned.to(self._dtype(returned.dtype))
        return returned

    def _dtype(self, value: Any) -> Any:
        if not isinstance(value, torch.dtype) or value not in WIDE:
            return value
        self.asked.add(value)
        return self._replaced.get(value, value)


class _BitsError(Exception):
    """The reference reads or writes the bits of a number, and double precision has others."""


@contextmanager
def double_by_default() -> Iterator[None]:
    """Let ``torch.zeros(n)`` and quotients of integers have double precision in this block.

    PyTorch's default dtype is the whole process's. Only the main thread sets it: in a thread beside
    a user's program, tensors that the program makes meanwhile would change, so a mode of that
    thread's own stands in.
    """
    if threading.current_thread() is not threading.main_thread():
        with _Doubles():
            yield
        return
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


class _Doubles(TorchFunctionMode):
    """Call functions again in double precision where the default dtype decided on the result."""

    def __torch_function__(
        self,
        function: Callable[..., Any],
        types: Any,
        arguments: tuple[Any, ...] = (),
        keywords: Mapping[str, Any] | None = None,
    ) -> Any:
        keywords = keywords or {}
        made = function(*arguments, **keywords)
        given = tree_leaves([arguments, keywords])
        if not isinstance(made, Tensor) or made.dtype not in _SINGLE or any(map(_decides, given)):
            return made
        if any(isinstance(value, Tensor) for value in given):
            named = {name: _doubled(value) for name, value in keywords.items()}
            return function(*map(_doubled, arguments), **named)
        try:
            return function(*arguments, **keywords, dtype=_SINGLE[made.dtype])
        except TypeError:
            return made.to(_SINGLE[made.dtype])


def _decides(value: Any) -> bool:
    """Return whether a result's dtype follows from this value, rather than from the default."""
    if isinstance(value, Tensor):
        return value.is_floating_point() or value.is_complex()
    return isinstance(value, torch.dtype)


def _doubled(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return type(value)(map(_doubled, value))
    return value.double() if isinstance(value, Tensor) else value
