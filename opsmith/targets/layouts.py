"""What PyTorch notes of every tensor that it traces, without how the tensor lies in memory.

It asks that of three layouts, and where sizes are symbols, to answer takes a sixth of the time that
a trace does. Exporters go by the sizes, and by the strides.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

from opsmith.targets.replacement import Replacement


def _tracer() -> Any:
    from torch.fx.experimental import proxy_tensor

    return proxy_tensor


def _unasked(describe: Callable[..., Any]) -> Callable[..., Any]:
    if "include_contiguity" not in inspect.signature(describe).parameters:
        return describe
    return functools.partial(describe, include_contiguity=False)


#: A block in which no traced tensor is asked for its layout.
layouts_unasked = Replacement(_tracer, "_extract_tensor_metadata", _unasked)
