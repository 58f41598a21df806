"""Symbolic sizes: note the conditions that PyTorch needs while it traces, without proving them.

Every name exists in each release from 2.10 on.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable

from torch import SymInt
from torch.fx.experimental.symbolic_shapes import ShapeEnv, free_unbacked_symbols

from opsmith.compat.patch import Patch
from opsmith.untyped import Untyped

# The files in which PyTorch implements the sizes and strides of its operators, and those that call
# operators in C++, which read sizes themselves.
_INTERNAL = re.compile(
    r"torch/(_prims_common|_prims|_refs|_decomp|_meta_registrations|_subclasses"
    r"|_ops|utils/_stats|fx/experimental/proxy_tensor)\b"
)

#: PyTorch's functions for symbolic numbers, and Python's for plain ones.
_PLAIN = {"torch.sym_float(": "float(", "torch._sym_sqrt(": "math.sqrt("}


class NotingShapeEnv(ShapeEnv):
    """Answers questions about sizes by their current values, and notes each as a condition.

    PyTorch would first try to prove the answer from earlier conditions. For sizes that are
    quotients, the proofs take most of the time, and only save conditions, which are cheap to
    compare.

    Private: ``torch.fx.experimental.symbolic_shapes.ShapeEnv._maybe_evaluate_static``,
    ``torch.fx.experimental.symbolic_shapes.ShapeEnv._maybe_guard_rel``. If a PyTorch lacks the
    first, derivatives for JAX take longer to translate. If it lacks the second, a derivative has no
    path for a call with a size of 0, or a wrong path.
    """

    def __init__(self, **settings: Untyped) -> None:
        super().__init__(**settings)
        self._zeros: set[object] = set()

    # PyTorch clears the cache of this method, so it needs one.
    @functools.lru_cache(maxsize=0)  # noqa: B019
    def _maybe_evaluate_static(self, expr: Untyped, **how: object) -> object:
        if how.get("compute_hint") or not expr.free_symbols or free_unbacked_symbols(expr):
            return super()._maybe_evaluate_static(expr, **how)
        return None

    def create_symbol(self, val: Untyped, *args: Untyped, **kwargs: Untyped) -> Untyped:
        """Create a symbol; for a size of 0, do not assume that it is positive."""
        if val != 0:
            return super().create_symbol(val, *args, **kwargs)
        symbol = super().create_symbol(val, *args, **{**kwargs, "positive": None})
        self._zeros.add(symbol)
        return symbol

    def _maybe_guard_rel(self, expr: Untyped) -> None:  # type: ignore[override]
        # PyTorch solves for a symbol by dividing by others, which is wrong if they are 0: from `2*a
        # == 2*a*b` it concludes that b is 1.
        if expr.free_symbols.isdisjoint(self._zeros) or all(part.is_Atom for part in expr.args):
            super()._maybe_guard_rel(expr)


def _fake_fourier() -> object:
    """Return the module that holds the fake kernels of Fourier transforms.

    Private: ``torch._meta_registrations._exec_fft``. Without it, the derivative of a Fourier
    transform is translated to JAX for the sizes of the registered cases only.
    """
    from torch import _meta_registrations

    return _meta_registrations


def _without_layout(fake: Callable[..., object]) -> Callable[..., object]:
    @functools.wraps(fake)
    def _exec_fft(
        out: object, self: object, sizes: Untyped, *args: object, **how: object
    ) -> object:
        environments = [size.node.shape_env for size in sizes if isinstance(size, SymInt)]
        if any(isinstance(one, NotingShapeEnv) for one in environments):
            return out
        return fake(out, self, sizes, *args, **how)

    return _exec_fft


#: A block in which traces with a `NotingShapeEnv` keep the sizes of Fourier transforms symbolic.
#: PyTorch's fake kernels turn every size into a number to compute the strides of the result, and
#: such traces do not use strides.
fourier_without_layout = Patch(_fake_fourier, "_exec_fft", _without_layout)


def printed(expression: object) -> str:
    """Return an expression of sizes as Python code, with functions for plain numbers.

    Private: ``torch.utils._sympy.printers.PythonPrinter``. Without it, no derivative is translated
    to JAX.
    """
    from torch.utils._sympy.printers import PythonPrinter

    text = str(PythonPrinter().doprint(expression))
    for theirs, plain in _PLAIN.items():
        text = text.replace(theirs, plain)
    return text


def is_internal(place: str) -> bool:
    """Return whether a place in code lies in a file in which PyTorch implements its operators."""
    return bool(_INTERNAL.search(place))
