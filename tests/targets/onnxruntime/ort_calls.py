"""Calls of `ort_test::everything`, which between them have every kind of argument."""

from __future__ import annotations

from typing import Any

import ort_operators as operators
import torch
from torch import Tensor

CALLS: dict[str, dict[str, Any]] = {
    "everything given": {"mode": "text", "flags": [True, False], "extra": 4, "ratio": 0.5},
    "nothing optional": {"bias": None, "index": None, "more": None},
    "empty lists": {"others": [], "more": [], "sizes": []},
    "an empty text": {"label": "", "on": False},
    "text that is not ASCII": {"label": "größer"},
    "numbers that 32 bits do not hold": {"k": 2**40 + 1, "scale": 0.1, "shift": 1e-40},
    "transposed": {"x": torch.linspace(-1, 1, 6).reshape(3, 2).t()},
    "expanded": {"bias": torch.ones(1).expand(3)},
    "no rows": {"x": torch.ones(0, 3), "index": None, "others": []},
}


def arguments(dtype: torch.dtype | None = None, **changes: Any) -> dict[str, Any]:
    """The arguments of a call, with some of them changed, and then all of one dtype."""
    x = torch.linspace(-1, 1, 6).reshape(2, 3)
    given = {
        "x": x,
        "bias": torch.arange(3.0),
        "index": torch.tensor([1, 0]),
        "others": [x + 1, x * 2],
        "more": [torch.ones(4), torch.ones(1)],
        "k": 3,
        "on": True,
        "sizes": [5, 7],
        "weights": (0.1, 0.25),
        **changes,
    }
    return given if dtype is None else {n: _converted(value, dtype) for n, value in given.items()}


def _converted(value: Any, dtype: torch.dtype) -> Any:
    if isinstance(value, list):
        return [_converted(item, dtype) for item in value]
    floating = isinstance(value, Tensor) and value.is_floating_point()
    return value.to(dtype) if floating else value


def expected(given: dict[str, Any]) -> list[Tensor]:
    """What a kernel gives."""
    label = given.get("label")
    # The reference counts letters, the kernel bytes.
    known = given if label is None else {**given, "label": "x" * len(label.encode())}
    return list(operators.everything(**known))
