"""Check calls with more elements than 32 bits can number, if there is enough memory.

The large tensors have dtypes of one byte.
"""

from __future__ import annotations

import itertools
import math
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from opsmith.checks.cases.case import Case, show_shape, show_tensor
from opsmith.checks.cases.failure import Failure, Inapplicable
from opsmith.checks.cases.reference_call import run_reference
from opsmith.checks.cases.sampling import Wanted, cases
from opsmith.checks.cases.search import search
from opsmith.checks.cases.values import fill
from opsmith.checks.numerics.comparison import compare
from opsmith.checks.numerics.oracle import Expected
from opsmith.checks.numerics.selections import selection_of
from opsmith.checks.protocol import PLAIN_CALLS, define_check
from opsmith.checks.trial.trial import Trial
from opsmith.operators.core.arguments import DTYPES, dtype_name, flatten, map_tensors
from opsmith.signature import Parameter, Signature, TensorInfo, bind, result_shapes
from opsmith.signature.binding import Bindings
from opsmith.signature.constraints import ValueRange
from opsmith.signature.dtype_variables import parts
from opsmith.signature.sizes import expressions
from opsmith.signature.sizes.expressions import Name
from opsmith.signature.sizes.shapes import Fixed, Variadic
from opsmith.signature.solving.fitting import Fitting
from opsmith.system.processes.memory import available

#: The product of the two sides exceeds 2**31, while anything computed from one side is small.
_SIDES = (46_342, 46_343)
_LINE = 2**31 + 77
#: Values repeat after a prime number of elements, so that elements 2**31 or 2**32 apart differ.
_PERIOD = 1_000_003
_CHUNK = 1 << 24
#: The fraction of the available memory that the check may use.
_SHARE = 0.6
_CODE = "OPS-SIZE-LARGE"


@dataclass(frozen=True)
class _Plan:
    """A large call.

    Attributes:
        grown: the argument that has more than 2**31 elements.
        shapes: the shapes of all tensor arguments that are present.
        dims: the sizes by name.
        small: a small call, which supplies all other arguments.
    """

    grown: Parameter
    shapes: Mapping[str, tuple[int, ...]]
    dims: Mapping[str, int]
    small: Case


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
    plan = next(_plans(trial), None)
    if plan is None:
        raise Inapplicable(
            "no argument of one byte (bool, uint8, int8) has a dimension that can be large"
        )
    wanted, there = _bytes(trial.signature, plan), available()
    if there is not None and wanted > _SHARE * there:
        raise Inapplicable(
            f"needs {wanted / 2**30:.0f} GiB of memory, and may take {_SHARE:.0%} of the "
            f"{there / 2**30:.0f} GiB that are free"
        )
    shown = _shown(plan)
    trial.counts.ran += 1
    if shown in trial.runner.crashed:
        how, code = trial.runner.crashed[shown]
        raise Failure(f"{how}, called with {shown}", code=code)
    # Announce before anything large is allocated: the memory limit of the process follows from it.
    trial.runner.announce(shown, shown, math.prod(plan.shapes[plan.grown.name]))
    values = _values(trial.signature, plan)
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


def _shown(plan: _Plan) -> str:
    """Describe the call in one line."""
    parts = []
    for name, value in plan.small.values.items():
        if isinstance(value, Tensor):
            parts.append(f"{name}: {dtype_name(value.dtype)} {show_shape(plan.shapes[name])}")
        else:
            parts.append(f"{name}={value!r}")
    return ", ".join(parts)


def _run(trial: Trial, given: Mapping[str, Any]) -> list[Tensor]:
    try:
        return flatten(trial.signature, trial.call(given), given)
    except Exception as error:
        raise Failure(trial.raised(error), code="OPS-CALL-RAISED") from error


def _compare(name: str, found: Tensor, right: Tensor, shown: str) -> None:
    """Compare piece by piece: a comparison needs many times the memory of what it compares.

    Raises:
        Failure: a result is wrong.
    """
    if found.shape != right.shape or found.dtype != right.dtype:
        raise Failure(
            f"{name} is {show_tensor(found)}, expected {show_tensor(right)}, called with {shown}",
            code=_CODE,
        )
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


def _plans(trial: Trial) -> Iterator[_Plan]:
    """Yield a plan for every argument that can be large, in every dtype of one byte."""
    signature = trial.signature
    dtypes = [
        dtype
        for dtype in trial.subject.dtypes
        if dtype is None or any(DTYPES[one].itemsize == 1 for one in parts(dtype))
    ]
    for parameter, dtype in itertools.product(signature.tensors, dtypes):
        type_ = parameter.tensor_type
        if not parameter.is_tensor or type_ is None or type_.shape is None:
            continue
        name = signature.dtype_in(type_, dtype)
        fills = all(isinstance(c, ValueRange) and c.start is None for c in parameter.constraints)
        if name is None or DTYPES[name].itemsize > 1 or not fills:
            continue
        small = _small(trial, dtype)
        if small is None or small.values[parameter.name] is None:
            continue
        bindings = bind(signature, small.described())
        dims, variadic = dict(bindings.dims), dict(bindings.variadic)
        plain = [
            d.expression.name
            for d in type_.shape.dims
            if isinstance(d, Fixed) and isinstance(d.expression, Name)
        ]
        names = [d.name for d in type_.shape.dims if isinstance(d, Variadic) and d.name]
        fitting = Fitting(signature)
        if len(set(plain)) > 1:
            for one, side in zip(list(dict.fromkeys(plain))[-2:], _SIDES, strict=True):
                dims[one] = fitting.near(one, side) or 0
        elif names:
            variadic[names[0]] = _SIDES
        elif plain:
            dims[plain[0]] = fitting.near(plain[0], _LINE) or 0
        else:
            continue
        if not all(fitting.fits(one, dims[one], dims, small.values) for one in dims):
            continue
        shapes = {
            p.name: _shape(p, small, dims, variadic)
            for p in signature.tensors
            if p.is_tensor and small.values[p.name] is not None
        }
        yield _Plan(parameter, shapes, dims, small)


def _small(trial: Trial, dtype: str | None) -> Case | None:
    """Sample a call with single elements, for the arguments that are not large."""
    found: list[Case] = []
    wanted = Wanted(dtype=dtype, sizes=(1,), ranks=(2,), lengths=(1,))
    seed = zlib.crc32(f"{trial.settings.seed} large {dtype}".encode())
    strategy = cases(trial.signature, replace(wanted, dtype=dtype))
    search(strategy, found.append, examples=1, seed=seed, seconds=5.0, size=lambda case: case.numel)
    return found[0] if found else None


def _shape(
    parameter: Parameter,
    small: Case,
    dims: Mapping[str, int],
    variadic: Mapping[str, tuple[int, ...]],
) -> tuple[int, ...]:
    have = tuple(small.values[parameter.name].shape)
    type_ = parameter.tensor_type
    if type_ is None or type_.shape is None:
        return have
    sizes: list[int] = []
    taken = 0
    for dim in type_.shape.dims:
        if isinstance(dim, Variadic):
            width = len(have) - type_.shape.rank
            own = have[taken : taken + width]
            sizes += own if dim.name is None else variadic[dim.name]
            taken += width
            continue
        if isinstance(dim, Fixed):
            sizes.append(expressions.evaluate(dim.expression, dims, small.values))
        else:
            sizes.append(have[taken])
        taken += 1
    return tuple(sizes)


def _bindings(signature: Signature, plan: _Plan) -> Bindings:
    described = plan.small.described()
    for name, shape in plan.shapes.items():
        described[name] = TensorInfo(shape, described[name].dtype)
    return bind(signature, described)


def _bytes(signature: Signature, plan: _Plan) -> int:
    """Return the memory of a call: arguments, copies of mutated ones, and three times the results.

    The three are the kernel's results, the reference's results, and as much for its intermediate
    values.
    """
    if signature.data_dependent or not signature.shaped:
        raise Inapplicable("the sizes of its results are not known before a call")
    bindings = _bindings(signature, plan)
    written = {parameter.name: parameter.mutated for parameter in signature.parameters}
    given = sum(
        math.prod(shape) * plan.small.values[name].element_size() * (1 + 2 * written[name])
        for name, shape in plan.shapes.items()
    )
    gives = 0
    results = result_shapes(signature, bindings, plan.small.values)
    for result, shape in zip(signature.results, results, strict=True):
        name = signature.dtype_in(result.tensor_type, bindings.dtype)
        gives += math.prod(shape) * DTYPES[str(name)].itemsize
    return given + 3 * gives


def _values(signature: Signature, plan: _Plan) -> dict[str, Any]:
    values = dict(plan.small.values)
    for number, (name, shape) in enumerate(plan.shapes.items()):
        old = values[name]
        if tuple(old.shape) != shape:
            dtype = dtype_name(old.dtype)
            values[name] = _filled(signature.by_name[name], shape, dtype, number, plan.dims, values)
    return values


def _filled(
    parameter: Parameter,
    shape: tuple[int, ...],
    dtype: str,
    seed: int,
    dims: Mapping[str, int],
    values: Mapping[str, Any],
) -> Tensor:
    count = math.prod(shape)
    if count <= _PERIOD:
        return fill(parameter, shape, dtype, seed, dims, values)
    pattern = fill(parameter, (_PERIOD,), dtype, seed, dims, values)
    memory = torch.empty(count, dtype=pattern.dtype)
    whole = count // _PERIOD * _PERIOD
    memory[:whole].view(-1, _PERIOD).copy_(pattern)
    memory[whole:] = pattern[: count - whole]
    return memory.view(shape)
