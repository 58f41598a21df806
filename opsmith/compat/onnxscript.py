"""onnxscript, which torch.onnx calls: constants, and its library of functions.

The names exist in each release from 0.5 on, and of PyTorch from 2.10 on.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import SimpleNamespace

from opsmith.compat.patch import Patch
from opsmith.untyped import Untyped


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


def _building() -> object:
    """Return the module that decides the dtypes of numbers in exported models.

    Private: ``torch.onnx._internal.exporter._building._determine_input_dtype``. Without it, a
    number is rounded to float32 before it is converted to float64.
    """
    from torch.onnx._internal.exporter import _building

    return _building


def _in_full(determine: Callable[..., object]) -> Callable[..., object]:
    def dtype(param: Untyped, number: object, *bound: object) -> object:
        # Match what `Cast` and `CastLike` convert.
        if type(number) is float and (param.name, param.type_constraint.name) == ("input", "T1"):
            from onnx_ir import DataType

            return DataType.DOUBLE
        return determine(param, number, *bound)

    return dtype


#: A block in which exports convert numbers from double precision.
numbers_in_full = Patch(_building, "_determine_input_dtype", _in_full)


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
