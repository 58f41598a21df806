"""A program is taken apart once: by what opsmith mends, and by what torch.onnx takes apart itself.

PyTorch traces the whole program for that, which is the longest part of an export.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

from opsmith.targets.composite import found_once
from opsmith.targets.onnx import torchlib
from opsmith.targets.onnx.decompositions import DECOMPOSITIONS
from opsmith.targets.replacement import Replacement


@dataclass(frozen=True)
class Apart:
    """How a program is taken apart before it is exported.

    Attributes:
        table: by overload what does the same in other operators, or gives `NotImplemented`.
        block: a block in which torch.onnx takes nothing apart that was taken apart by `table`.
    """

    table: Mapping[Any, Callable[..., Any]]
    block: Callable[[], AbstractContextManager[None]] = nullcontext


def for_dynamo(opset: int) -> Apart:
    """By what opsmith mends, and then by what torch.onnx's own exporter cannot translate."""
    try:
        from torch.onnx._internal.exporter._decomp import (
            create_onnx_friendly_decomposition_table,
            get_onnx_implemented_overloads,
        )
        from torch.onnx._internal.exporter._registration import ONNXRegistry

        with torchlib.read_once(), found_once():
            registry = ONNXRegistry.from_torchlib(opset)
            known = set(get_onnx_implemented_overloads(registry))
            table = dict(create_onnx_friendly_decomposition_table(known))
    except (ImportError, AttributeError, TypeError):
        return Apart(DECOMPOSITIONS)  # another release: it takes the rest apart itself
    for target, mended in DECOMPOSITIONS.items():
        table[target] = _first(mended, table[target]) if target in table else mended
    return Apart(table, _done)


def _first(mended: Callable[..., Any], other: Callable[..., Any]) -> Callable[..., Any]:
    def run(*args: Any, **kwargs: Any) -> Any:
        found = mended(*args, **kwargs)
        return other(*args, **kwargs) if found is NotImplemented else found

    return run


def _passes() -> Any:
    from torch.onnx._internal.exporter import _fx_passes

    return _fx_passes


def _nothing(program: Any, registry: Any) -> Any:
    del registry
    return program


_done = Replacement(_passes, "decompose_with_registry", lambda _: _nothing)
