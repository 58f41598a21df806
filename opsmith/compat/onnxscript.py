"""onnxscript, which torch.onnx calls: its optimizer's constants, and its library of functions.

The names exist in each release from 0.5 on, and of PyTorch from 2.10 on.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import SimpleNamespace

from opsmith.compat.patch import Patch


def constants_compared_by(is_close: Callable[..., bool]) -> Patch:
    """Return a block in which the optimizer compares constants by another function.

    Private: ``onnxscript.rewriter._matcher``, which calls ``math.isclose``. Without it, exported
    models have the errors for numbers near 0 and 1 that `opsmith.targets.onnx.dynamo`
    describes.

    Args:
        is_close: has the parameters of ``math.isclose``.
    """

    def matcher() -> object:
        from onnxscript.rewriter import _matcher

        return _matcher

    def changed(module: object) -> object:
        return SimpleNamespace(**{**vars(module), "isclose": is_close})

    return Patch(matcher, "math", changed)


@functools.cache
def _once(look_up: Callable[[], object]) -> object:
    return look_up()


def _library() -> object:
    """Return the module in which exports look up onnxscript's library.

    Private: ``torch.onnx._internal.exporter._registration.onnxscript_apis``, whose
    ``get_torchlib_ops`` parses the source of every function again. Without it, each export but the
    first takes half as long again.
    """
    from torch.onnx._internal.exporter._registration import onnxscript_apis

    return onnxscript_apis


#: A block in which exports take onnxscript's library as the process's first export parsed it.
library_parsed_once = Patch(
    _library, "get_torchlib_ops", lambda look_up: functools.partial(_once, look_up)
)
