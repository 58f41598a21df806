"""torch.onnx: the table of its TorchScript exporter, which PyTorch lets one write and not read.

Every name here is below ``torch.onnx._internal.torchscript_exporter``, where it is since PyTorch
2.9. Nothing here imports torch.onnx before its caller has: who registered something imported it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

_EXPORTER = "torch.onnx._internal.torchscript_exporter"


def registered_symbolics(name: str) -> dict[int, Callable[..., Any]]:
    """Return what ``torch.onnx.register_custom_op_symbolic`` was given for an operator, by opset.

    Private: ``registration.registry``, whose groups keep in ``_functions._overrides`` what users
    registered beside what PyTorch has. Without it, such a registration does not count once the
    operator is adopted.
    """
    registration = sys.modules.get(f"{_EXPORTER}.registration")
    group = registration.registry.get_function_group(name) if registration else None
    return {} if group is None else dict(group._functions._overrides)


@contextmanager
def symbolics_registered(functions: Mapping[tuple[str, int], Callable[..., Any]]) -> Iterator[None]:
    """Register functions that make nodes for a block, and then what was registered before.

    Private: ``registration.registry._registry``, whose groups without functions are taken away
    again, because the exporter stumbles over a node that is named as one of them.

    Args:
        functions: each by the operator's name and an opset.
    """
    import torch

    before = {key: registered_symbolics(key[0]).get(key[1]) for key in functions}
    try:
        for (name, opset), function in functions.items():
            torch.onnx.register_custom_op_symbolic(name, function, opset)
        yield
    finally:
        registry = sys.modules[f"{_EXPORTER}.registration"].registry
        for (name, opset), earlier in before.items():
            torch.onnx.unregister_custom_op_symbolic(name, opset)
            if earlier is not None:
                torch.onnx.register_custom_op_symbolic(name, earlier, opset)
            group = registry.get_function_group(name)
            if group is not None and not group._functions:
                del registry._registry[name]


def in_torchscript_export() -> bool:
    """Return whether the TorchScript exporter is at work.

    Private: ``_globals.GLOBALS``. The public ``torch.onnx.is_in_onnx_export`` does not tell which
    of the exporters it is.
    """
    found = sys.modules.get(f"{_EXPORTER}._globals")
    return found is not None and bool(found.GLOBALS.in_onnx_export)
