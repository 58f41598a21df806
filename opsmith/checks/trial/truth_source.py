"""Compute the right results for a check's cases, or take them from another row of the run.

Computing them takes a dozen evaluations of the reference in double precision, and most checks run
the same registered cases, so that one row's results serve the others.
"""

from __future__ import annotations

import contextlib
import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import Tensor

from opsmith.checks.cases import layouts
from opsmith.checks.cases.case import Case
from opsmith.checks.cases.reference_call import run_reference
from opsmith.checks.cases.settings import Settings
from opsmith.checks.numerics.comparison import compare
from opsmith.checks.numerics.oracle import Expected, expected_of, require_accepted
from opsmith.operators import Operator
from opsmith.system.files import key_of, write_atomically
from opsmith.system.stopwatch import spending

#: The attributes of `Expected` in the cache; the others are derived from the arguments.
_FIELDS = ("names", "values", "spread", "terms", "exact", "steady")
#: Largest number of elements of results in the cache.
_LARGEST = 1 << 22

_Truth = TypeVar("_Truth", Expected, Expected | None)


@dataclass
class TruthSource:
    """Gives the right results for the cases of one check.

    Attributes:
        settings: the settings of the run, with the folder for results that rows share.
        notes: remarks for the report; here, that the reference disagrees with itself.
    """

    operator: Operator
    settings: Settings
    notes: list[str]
    _disagrees: bool = False

    @spending("truth")
    def truth(self, case: Case) -> Expected:
        """Return the right results for `case`."""

        def compute(known: Mapping[str, Any] | None) -> Expected:
            return expected_of(self.operator, case.values, known)

        truth = self.kept(case, compute)
        if not self._disagrees and any(how != layouts.CONTIGUOUS for how in case.layouts.values()):
            self._compare_reference(case, truth)
        return truth

    @spending("truth")
    def kept(
        self,
        case: Case,
        compute: Callable[[Mapping[str, Any] | None], _Truth],
        beside: Sequence[Tensor] | None = None,
    ) -> _Truth:
        """Return the right results for `case`, reusing those of another row of the run if possible.

        Args:
            compute: see `_kept_truth`.
            beside: the incoming gradients, if the results are gradients.
        """
        once = case.sampled and self.settings.repeats == 1
        if not (self.settings.truths and self.settings.shared) or once:
            return compute(None)
        # The right results do not depend on the memory layout of the arguments.
        plain = replace(case, layouts={}, same=(), shift=0)
        facts = [self.operator.name, plain.digest]
        if beside is not None:
            facts.append(replace(plain, values={"": list(beside)}).digest)
        return _kept_truth(Path(self.settings.shared, "truths", key_of(facts)), compute)

    @spending("truth")
    def accept(self, case: Case) -> None:
        """Refuse a sampled `case` that the reference refuses."""
        if case.sampled:
            require_accepted(self.operator, case.values)

    def _compare_reference(self, case: Case, truth: Expected) -> None:
        """Add a note if the reference itself gives different results for the layout of the case."""
        try:
            _, given = run_reference(self.operator, case.make())
        except Exception:
            return
        problem = compare(given, truth).problem
        if problem is not None:
            self._disagrees = True
            self.notes.append(
                "the reference disagrees with itself between memory layouts. Called with "
                f"{case.describe()}, {problem}. What it gives for contiguous copies is right here"
            )


def _kept_truth(path: Path, compute: Callable[[Mapping[str, Any] | None], _Truth]) -> _Truth:
    """Return the right results, from a file if another check saved them.

    Args:
        path: the file; its name identifies the operator, the arguments and the kind of results.
        compute: function that computes the results from the saved attributes (see `known` of
            `expected_of`) or, given `None`, from the start.
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
