"""The exporter's own translations of PyTorch's operators, whose sources are read once.

For every export, torch.onnx parses the sources of the 500 functions that onnxscript translates
operators with, to learn the domain that each is in. That takes longer than to translate a small
model. What a source says stays the same, so it is kept with the function.
"""

from __future__ import annotations

from typing import Any
from weakref import WeakKeyDictionary

from opsmith.targets.replacement import Replacement

_read: WeakKeyDictionary[Any, Any] = WeakKeyDictionary()


def read() -> None:
    """Read them now, so that the exports of this process, and of its forks, need not."""
    from onnxscript._framework_apis.torch_2_5 import get_torchlib_ops

    with read_once():
        get_torchlib_ops()


def _functions() -> Any:
    from onnxscript._internal.values import TracedOnnxFunction

    return TracedOnnxFunction


def _remembered(parses: Any) -> property:
    def function_ir(function: Any) -> Any:
        if function not in _read:
            _read[function] = parses.fget(function)
        return _read[function]

    return property(function_ir)


#: A block in which no source is parsed that was parsed before.
read_once = Replacement(_functions, "function_ir", _remembered)
