"""A cache of the oracle's results for registered cases, shared by the checks of a run.

Computing the results takes a dozen evaluations of the reference in double precision, and most
checks run the same cases.
"""

from __future__ import annotations

import contextlib
import io
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import torch

from opsmith.checks.numerics.oracle import Expected
from opsmith.system.files import write_atomically

#: The attributes of `Expected` in the cache; the others are derived from the arguments.
_FIELDS = ("names", "values", "spread", "terms", "exact", "steady")
#: Largest number of elements of results in the cache.
_LARGEST = 1 << 22

Truth = TypeVar("Truth", Expected, Expected | None)


def kept_truth(path: Path, compute: Callable[[Mapping[str, Any] | None], Truth]) -> Truth:
    """Return the right results, from a file if another check saved them.

    Args:
        path: the file; its name identifies the operator, the arguments and the kind of results.
        compute: function that computes the results from the saved attributes (see `known` of
            `expected_of`) or, given `None`, from the start.

    Raises:
        RefusedError: the reference rejects the arguments, see `expected_of`.
    """
    found = _read(path)
    if found is not None:
        return compute(found)
    truth = compute(None)
    if truth is not None and sum(value.numel() for value in truth.values) <= _LARGEST:
        _write(path, truth)
    return truth


def _read(path: Path) -> dict[str, Any] | None:
    try:
        found: dict[str, Any] = torch.load(path)
    except Exception:  # the kernel of another check may have damaged the file
        return None
    return found


def _write(path: Path, truth: Expected) -> None:
    buffer = io.BytesIO()
    with contextlib.suppress(Exception):  # the next check computes the results again
        torch.save({name: getattr(truth, name) for name in _FIELDS}, buffer)
        write_atomically(path, buffer.getvalue())
