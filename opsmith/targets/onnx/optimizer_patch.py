"""The exporter's optimizer, which takes numbers near 0 and 1 for 0 and 1.

It drops ``x + 0`` and ``x * 1`` from a model, and with them ``x + 1e-8`` and ``x * 1.000001``: what
kept a division from one by zero is gone, and the model gives infinity. onnxscript's patterns
compare a constant within 1e-5 of it, and within 1e-8.
"""

from __future__ import annotations

import math

from opsmith.compat.onnxscript import constants_compared_by

#: Less than from one float to the next, and more than such a number as 1/6 is rounded by.
_CLOSE = 1e-7


def _close(a: float, b: float, **tolerances: float) -> bool:
    del tolerances
    return a == b if float(b).is_integer() else math.isclose(a, b, rel_tol=_CLOSE)


#: A block in which the optimizer drops what does nothing, and nothing else.
only_no_ops = constants_compared_by(_close)
