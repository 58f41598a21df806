"""Check calls with more elements than 32 bits can number, if there is enough memory.

The large tensors have dtypes of one byte.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor

from opsmith.checks.cases.case import show_shape
from opsmith.checks.cases.failure import Failure, Inapplicable
from opsmith.checks.cases.large_calls import LargeCall, bytes_of, large_calls, small_case, whole
from opsmith.checks.cases.reference_call import run_reference
from opsmith.checks.cases.wanted import Wanted
from opsmith.checks.numerics.comparison import compare
from opsmith.checks.numerics.oracle import Expected
from opsmith.checks.numerics.selections import selection_of
from opsmith.checks.protocol import PLAIN_CALLS, define_check
from opsmith.checks.trial.trial import Trial
from opsmith.operators.core.arguments import dtype_name, flatten, map_tensors
from opsmith.signature import Signature
from opsmith.system.processes.memory import available

_ELEMENTS = 2**31 + 77
_CHUNK = 1 << 24
#: The fraction of the available memory that the check may use.
_SHARE = 0.6
_CODE = "OPS-SIZE-LARGE"


@define_check(
    "large",
    "more than 2**31 elements of one byte give right results, where there is memory",
    order=28,
    needs=PLAIN_CALLS,
    time_limit=10.0,
    flag="large",
)
def large(trial: Trial) -> None:
    """Compare a call with over 2**31 elements with the reference, run in the call's own dtype."""
    call = next(_calls(trial), None)
    if call is None:
        raise Inapplicable(
            "no argument of one byte (bool, uint8, int8) has a dimension that can be large"
        )
    wanted, there = _bytes(trial.signature, call), available()
    if there is not None and wanted > _SHARE * there:
        raise Inapplicable(
            f"needs {wanted / 2**30:.0f} GiB of memory, and may take {_SHARE:.0%} of the "
            f"{there / 2**30:.0f} GiB that are free"
        )
    shown = call.describe()
    trial.counts.ran += 1
    if shown in trial.runner.crashed:
        how, code = trial.runner.crashed[shown]
        raise Failure(f"{how}, called with {shown}", code=code)
    # Announce before anything large is allocated: the memory limit of the process follows from it.
    trial.runner.announce(shown, shown, call.elements)
    values = dict(call.small.values)
    for number, (name, shape) in enumerate(call.shapes.items()):
        if tuple(values[name].shape) != shape:
            values[name] = whole(call.pattern(name, number), shape)
    try:
        _, right = run_reference(trial.operator, values)
    except Exception as error:
        raise Inapplicable(f"the reference refuses {shown}: {error}") from None
    given = dict(values)
    for parameter in trial.signature.mutated:
        given[parameter.name] = map_tensors(given[parameter.name], Tensor.clone)
    for number, (found, expected) in enumerate(zip(_run(trial, given), right, strict=True)):
        if number < len(trial.signature.results):
            selection = selection_of(trial.signature, number, values, right)
            if selection is not None and found.shape == expected.shape:
                found, expected = selection.selected(found, expected)
        _compare(f"result {number}" if number else "the result", found, expected, shown)
    trial.notes.append(f"with {shown}")


def _calls(trial: Trial) -> Iterator[LargeCall]:
    """Yield the calls in which an argument of one byte an element is large, of every dtype."""
    for dtype in trial.subject.dtypes:
        small = small_case(trial.signature, Wanted(dtype, (1,), ranks=(2,), lengths=(1,)))
        ends = (_ELEMENTS, 2 * _ELEMENTS)
        for call, *_ in large_calls(small, ends, results=False) if small is not None else ():
            if call is not None and any(
                math.prod(shape) == call.elements and call.small.values[name].element_size() == 1
                for name, shape in call.shapes.items()
            ):
                yield call


def _run(trial: Trial, given: Mapping[str, Any]) -> list[Tensor]:
    try:
        return flatten(trial.signature, trial.call(given), given)
    except Exception as error:
        raise Failure(trial.raised(error), code="OPS-CALL-RAISED") from error


def _compare(name: str, found: Tensor, right: Tensor, shown: str) -> None:
    """Compare piece by piece: a comparison needs many times the memory of what it compares."""
    if found.shape != right.shape or found.dtype != right.dtype:
        # To look at their values would take as much memory again.
        got, wanted = (f"{dtype_name(t.dtype)} {show_shape(t.shape)}" for t in (found, right))
        raise Failure(f"{name} is {got}, expected {wanted}, called with {shown}", code=_CODE)
    found, right = found.contiguous().view(-1), right.contiguous().view(-1)
    for first in range(0, right.numel(), _CHUNK):
        expected, given = right[first : first + _CHUNK], found[first : first + _CHUNK]
        if torch.equal(given, expected):
            continue
        what = f"{name}.flatten()[{first}:]" if first else f"{name}.flatten()"
        inexact = expected.is_floating_point() or expected.is_complex()
        size = expected.abs().double() if inexact else None
        terms = torch.ones_like(size) if size is not None else None
        # Trust the reference to the precision of its dtype, as if the reference required this
        # dtype.
        truth = Expected([what], [expected], [size], [terms], False, _not_again, {})
        problem = compare([given], truth).problem
        if problem is not None:
            raise Failure(f"{problem}, called with {shown}", code=_CODE)


def _not_again(arguments: Mapping[str, Any]) -> list[Tensor]:
    """Refuse to run the reference again, which takes gigabytes; `compare` goes on without a run."""
    raise MemoryError("the reference is not run again on tensors of this size")


def _bytes(signature: Signature, call: LargeCall) -> int:
    """Return the memory of a call: arguments, copies of mutated ones, and three times the results.

    The three are the kernel's results, the reference's results, and as much for its intermediate
    values.
    """
    if signature.data_dependent or not signature.shaped:
        raise Inapplicable("the sizes of its results are not known before a call")
    each = bytes_of(call)
    times = [1 + 2 * signature.by_name[name].mutated for name in call.shapes]
    return sum(n * t for n, t in zip(each, times, strict=False)) + 3 * sum(each[len(times) :])
