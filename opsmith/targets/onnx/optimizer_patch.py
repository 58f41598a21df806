"""Stop the exporter's optimizer from treating numbers near 0 and 1 as 0 and 1.

The optimizer drops ``x + 0`` and ``x * 1`` from a model, but also ``x + 1e-8`` and ``x *
1.000001``. Without an epsilon that prevents a division by zero, the model returns infinity. The
cause is that onnxscript's patterns compare constants with a relative tolerance of 1e-5 and an
absolute one of 1e-8.
"""

from __future__ import annotations

import math

from opsmith.compat.onnxscript import constants_compared_by

#: Less than the distance between neighbouring floats, and more than the rounding error of a number
#: such as 1/6.
_CLOSE = 1e-7


def _close(a: float, b: float, **tolerances: float) -> bool:
    del tolerances
    return a == b if float(b).is_integer() else math.isclose(a, b, rel_tol=_CLOSE)


#: A block in which the optimizer drops only operations without effect.
only_no_ops = constants_compared_by(_close)
