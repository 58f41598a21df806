"""The exporter's own translations of PyTorch's operators, whose sources are read once.

For every export, torch.onnx parses the sources of the 500 functions that onnxscript translates
operators with, to learn the domain that each is in. That takes longer than to translate a small
model. What a source says stays the same, so it is kept with the function.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from weakref import WeakKeyDictionary

#: The property of a function that parses its source each time.
_NAME = "function_ir"

_lock = threading.RLock()
_read: WeakKeyDictionary[Any, Any] = WeakKeyDictionary()
_exports = 0
_original: Any = None


def read() -> None:
    """Read them now, so that the exports of this process, and of its forks, need not."""
    from onnxscript._framework_apis.torch_2_5 import get_torchlib_ops

    with read_once():
        get_torchlib_ops()


@contextmanager
def read_once() -> Iterator[None]:
    """A block in which nothing is read that was read before; threads may be in it side by side."""
    global _exports, _original
    try:
        from onnxscript._internal.values import TracedOnnxFunction

        found = vars(TracedOnnxFunction)[_NAME]
    except (ImportError, KeyError):  # an onnxscript of another make
        yield
        return
    with _lock:
        _exports += 1
        if _exports == 1:
            _original = found
            setattr(TracedOnnxFunction, _NAME, property(_function_ir))
    try:
        yield
    finally:
        with _lock:
            _exports -= 1
            if not _exports:
                setattr(TracedOnnxFunction, _NAME, _original)


def _function_ir(function: Any) -> Any:
    with _lock:
        if function not in _read:
            _read[function] = _original.fget(function)
        return _read[function]
