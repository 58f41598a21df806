"""onnxscript: the comparison of constants in its optimizer, which torch.onnx calls.

The name exists in each release from 0.5 on.
"""

from __future__ import annotations

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
