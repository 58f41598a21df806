"""What is right for the author's cases, computed by the first row of a run that needs it.

It takes a dozen evaluations of the reference in double precision, and most rows run the same cases.
"""

from __future__ import annotations

import contextlib
import io
from pathlib import Path
from typing import Any

import torch

from opsmith.checks.expected import Expected, expected_of
from opsmith.kernels.files import write_atomically
from opsmith.operators import Operator

#: What is kept of `Expected`; all else is made of the arguments.
_FIELDS = ("names", "values", "spread", "terms", "exact")
#: Of results with more elements nothing is kept.
_LARGEST = 1 << 22


def kept_truth(path: Path, operator: Operator, arguments: dict[str, Any]) -> Expected:
    """What `expected_of` gives, from a file where another row left it there.

    Args:
        path: the file, whose name stands for the operator and its arguments.
        operator: see `expected_of`.
        arguments: see `expected_of`.

    Raises:
        RefusedError: see `expected_of`.
    """
    found = _read(path)
    if found is not None:
        return expected_of(operator, arguments, found)
    truth = expected_of(operator, arguments)
    if sum(value.numel() for value in truth.values) <= _LARGEST:
        _write(path, truth)
    return truth


def _read(path: Path) -> dict[str, Any] | None:
    try:
        found: dict[str, Any] = torch.load(path)
    except Exception:  # another row's kernel may have written anywhere
        return None
    return found


def _write(path: Path, truth: Expected) -> None:
    buffer = io.BytesIO()
    with contextlib.suppress(Exception):  # it is computed again
        torch.save({name: getattr(truth, name) for name in _FIELDS}, buffer)
        write_atomically(path, buffer.getvalue())
