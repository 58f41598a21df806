"""Sizes that are symbols: what PyTorch asks of them while it traces, noted and not proved.

Every name is in each release from 2.10 on.
"""

from __future__ import annotations

import functools
import re
from typing import Any

from torch.fx.experimental.symbolic_shapes import ShapeEnv, free_unbacked_symbols

# The files in which PyTorch says what its operators do to sizes and strides, and those from which
# operators in C++ are called, which ask by themselves.
_INTERNAL = re.compile(
    r"torch/(_prims_common|_prims|_refs|_decomp|_meta_registrations|_subclasses"
    r"|_ops|utils/_stats|fx/experimental/proxy_tensor)\b"
)

#: What PyTorch prints for numbers that are symbols, and Python has for those that are not.
_PLAIN = {"torch.sym_float(": "float(", "torch._sym_sqrt(": "math.sqrt("}


class NotingShapeEnv(ShapeEnv):
    """Answers what is asked of sizes as they are, and notes each question as a condition.

    PyTorch would first try to prove the answer from what was asked before. That takes most of the
    time where sizes are quotients, and saves conditions only, which are cheap to compare.

    Private: ``ShapeEnv._maybe_evaluate_static``, ``ShapeEnv._maybe_guard_rel``. Without the first,
    derivatives for JAX take longer to translate; without the second, those of calls with a size of
    0 have no path, or a wrong one.
    """

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self._zeros: set[Any] = set()

    # PyTorch clears what this method keeps.
    @functools.lru_cache(maxsize=0)  # noqa: B019
    def _maybe_evaluate_static(self, expr: Any, **how: Any) -> Any:
        if how.get("compute_hint") or not expr.free_symbols or free_unbacked_symbols(expr):
            return super()._maybe_evaluate_static(expr, **how)
        return None

    def create_symbol(self, val: Any, *args: Any, **kwargs: Any) -> Any:
        """Create a symbol, that of a size of 0 without the assumption that sizes are positive."""
        if val != 0:
            return super().create_symbol(val, *args, **kwargs)
        symbol = super().create_symbol(val, *args, **{**kwargs, "positive": None})
        self._zeros.add(symbol)
        return symbol

    def _maybe_guard_rel(self, expr: Any) -> None:  # type: ignore[override]
        # PyTorch solves for a symbol by dividing by others, which is wrong where they are 0: of
        # `2*a == 2*a*b` it learns that b is 1.
        if expr.free_symbols.isdisjoint(self._zeros) or all(part.is_Atom for part in expr.args):
            super()._maybe_guard_rel(expr)


def printed(expression: Any) -> str:
    """Return an expression of sizes as Python, with functions for numbers that are no symbols.

    Private: ``torch.utils._sympy.printers.PythonPrinter``. Without it, no derivative is taken to
    JAX.
    """
    from torch.utils._sympy.printers import PythonPrinter

    text = str(PythonPrinter().doprint(expression))
    for theirs, plain in _PLAIN.items():
        text = text.replace(theirs, plain)
    return text


def is_internal(place: str) -> bool:
    """Return whether a file of PyTorch's own operators asked for a condition on sizes."""
    return bool(_INTERNAL.search(place))
