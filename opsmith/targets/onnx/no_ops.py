"""The exporter's optimizer, which takes numbers near 0 and 1 for 0 and 1.

It drops ``x + 0`` and ``x * 1`` from a model, and with them ``x + 1e-8`` and ``x * 1.000001``: what
kept a division from one by zero is gone, and the model gives infinity. onnxscript's patterns
compare a constant within 1e-5 of it, and within 1e-8.
"""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

from opsmith.compat.patch import Patch

#: Less than from one float to the next, and more than such a number as 1/6 is rounded by.
_CLOSE = 1e-7


def _close(a: float, b: float, **tolerances: float) -> bool:
    del tolerances
    return a == b if float(b).is_integer() else math.isclose(a, b, rel_tol=_CLOSE)


def _matcher() -> Any:
    from onnxscript.rewriter import _matcher

    return _matcher


#: A block in which the optimizer drops what does nothing, and nothing else.
only_no_ops = Patch(
    _matcher, "math", lambda module: SimpleNamespace(**{**vars(module), "isclose": _close})
)
