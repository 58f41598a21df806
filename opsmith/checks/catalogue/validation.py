"""Check that a bad argument raises an error that names operator and argument, and never crashes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from opsmith.checks.cases.broken_conditions import broken_conditions
from opsmith.checks.cases.case import Case
from opsmith.checks.cases.failure import Failure
from opsmith.checks.cases.violations import violations
from opsmith.checks.cases.wanted import Wanted
from opsmith.checks.isolation.call_ways import AUTOCAST, Call, ways
from opsmith.checks.protocol import define_check
from opsmith.checks.trial.trial import Trial
from opsmith.errors import OpsmithError
from opsmith.kernels.toolchain.devices import host_reads
from opsmith.operators.core.arguments import DTYPES, describe, dtype_name, each_tensor
from opsmith.operators.core.value_checks import check_values
from opsmith.signature import Parameter, ScalarType, SequenceType, Signature, Sum, TensorType, bind
from opsmith.signature.binding import Bindings
from opsmith.signature.items import item_dims, lists_like
from opsmith.signature.sizes import expressions
from opsmith.signature.sizes.expressions import Name
from opsmith.signature.sizes.shapes import Fixed, Shape, Variadic


@dataclass(frozen=True)
class _Bad:
    """Arguments with exactly one error.

    Attributes:
        what: the error, in words.
        named: the message must name at least one of these arguments; empty if any message will do.
        said: a text that the message must contain.
        perhaps: whether the arguments may still fit, since another size is computed from the
            changed size and rounded.
        castable: whether a cast to another floating dtype, as in autocast, may let the arguments
            fit.
    """

    what: str
    arguments: dict[str, Any]
    named: tuple[str, ...]
    said: str = ""
    perhaps: bool = False
    castable: bool = False


@define_check(
    "validation", "a bad argument raises an error that names operator and argument", order=80
)
def validation(trial: Trial) -> None:
    """Make one rank, shared size, dtype, device, length or value wrong at a time.

    The first call of each kind is also made under jvp, vjp, vmap, functionalize and autocast.
    """
    trial.need(not trial.subject.adopted, "defined elsewhere, so it refuses in its own words")
    tried: set[str] = set()
    under: dict[str, None] = {}

    def one(case: Case) -> None:
        trial.accept(case)
        for bad in _bad_arguments(trial.signature, case.make(trial.subject.device)):
            if bad.perhaps and _fits(trial.signature, bad.arguments):
                continue
            trial.counts.ran += 1
            trial.runner.announce_case(case, bad.what)
            trial.counts.ran -= 1
            _must_refuse(trial, bad, trial.call)
            if bad.what in tried:
                continue
            tried.add(bad.what)
            for way, call in ways(trial.operator, trial.call, bad.arguments):
                if not (way == AUTOCAST and bad.castable):
                    under[way] = None
                    _must_refuse(trial, replace(bad, what=f"{bad.what}, under {way}"), call)

    # Use sizes that all differ, so that no wrong size fits by chance.
    wanted = Wanted(sizes=(2, 3, 4, 5, 6, 7, 9), distinct=True, max_elements=4096)
    trial.each(one, dtypes=(trial.subject.favourite,), wanted=wanted, examples=8)
    trial.need(tried, "every argument fits this declaration")
    trial.notes.append(f"{len(tried)} kind{'s' * (len(tried) != 1)} of bad argument")
    if under:
        trial.notes.append(f"also under {', '.join(under)}")
    unbroken = [one for one in trial.signature.where if not any(one in what for what in tried)]
    if unbroken:
        trial.notes.append(f"not {', '.join(unbroken)}: no sample could be made to break it alone")
    untried = [p.name for p in trial.signature.tensors if p.constraints]
    if untried and not host_reads(trial.subject.device):
        trial.notes.append(
            f"not the values of {', '.join(untried)}: the host does not read memory of "
            f"{trial.subject.device}"
        )


def _must_refuse(trial: Trial, bad: _Bad, call: Call) -> None:
    begin = f"{trial.operator.name}: "
    try:
        call(bad.arguments)
    except Exception as error:
        text, code = str(error), "OPS-VALIDATION-MESSAGE"
        if not isinstance(error, OpsmithError | RuntimeError):
            code = "OPS-VALIDATION-TYPE"
            wrong = f"raised {type(error).__name__}, expected an opsmith error"
        elif not text.startswith(begin):
            wrong = f"the message does not begin with {begin!r}"
        elif bad.named and not set(bad.named) & _names_in(text, trial.signature):
            wrong = f"the message does not name {bad.named[0]!r}"
        elif bad.said not in text:
            wrong = f"the message does not say {bad.said!r}"
        else:
            return
        raise Failure(f"{bad.what}: {wrong}: {text}", code=code) from error
    raise Failure(f"{bad.what}: accepted, expected an error", code="OPS-VALIDATION-ACCEPTED")


def _fits(signature: Signature, arguments: dict[str, Any]) -> bool:
    try:
        bindings = bind(signature, describe(arguments, signature))
        for parameter in signature.tensors:
            check_values(signature, parameter, arguments, bindings)
    except (OpsmithError, ZeroDivisionError):
        return False
    return True


def _names_in(text: str, signature: Signature) -> set[str]:
    """Return the arguments that a message names, in quotes or (scalars only) without."""
    words = set(re.findall(r"\w+", text))
    quoted = set(re.findall(r"'(\w+)(?:\[\d+\])?'", text))
    sizes = {p.name for p in signature.parameters if p.is_scalar or p.is_sequence}
    return quoted | (words & sizes)


def _bad_arguments(signature: Signature, arguments: dict[str, Any]) -> Iterator[_Bad]:
    bindings = bind(signature, describe(arguments, signature))
    sharing = _sharing(signature, arguments)
    rounded = _rounded(signature)
    for parameter in signature.parameters:
        value = arguments[parameter.name]
        if value is None:
            continue
        if isinstance(parameter.type, SequenceType):
            yield from _bad_sequence(parameter, parameter.type, arguments)
        if parameter.is_tensor:
            yield from _bad_tensor(signature, parameter, arguments, sharing, rounded)
        elif parameter.is_tensor_list and value:
            yield from _bad_list(signature, parameter, arguments)
        if isinstance(parameter.type, ScalarType) and parameter.type.choices:
            other = "".join(parameter.type.choices) + "?"
            changed = _with(arguments, parameter.name, other)
            yield _Bad(f"{parameter.name}={other!r}", changed, (parameter.name,))
        if parameter.constraints:
            yield from _bad_values(signature, parameter, arguments, bindings)
    for broken in broken_conditions(signature, arguments):
        yield _Bad(broken.what, broken.arguments, (), broken.condition)


def _bad_values(
    signature: Signature, parameter: Parameter, arguments: dict[str, Any], bindings: Bindings
) -> Iterator[_Bad]:
    name = parameter.name
    # If a constraint of another argument reads this value, that argument may be the one that does
    # not fit.
    readers = [p.name for p in signature.parameters for c in p.constraints if name in c.reads]
    # An empty shape stays empty when a size changes by one.
    perhaps = any(isinstance(c, Sum) and c.shapes for c in parameter.constraints)
    for what, wrong in violations(parameter, arguments, bindings):
        tensors = [*each_tensor(wrong)] if parameter.tensor_type is not None else []
        shown = "" if tensors else f": {wrong!r}"
        changed = _with(arguments, name, wrong)
        castable = any(tensor.is_floating_point() for tensor in tensors)
        named = (name, *readers)
        yield _Bad(f"{name!r} {what}{shown}", changed, named, perhaps=perhaps, castable=castable)


def _with(arguments: dict[str, Any], name: str, value: Any) -> dict[str, Any]:
    return {**arguments, name: value}


def _sharing(signature: Signature, arguments: dict[str, Any]) -> dict[str, list[str]]:
    """Return the arguments with each named dimension, once for each axis that has it."""
    found: dict[str, list[str]] = {}
    for parameter in signature.tensors:
        value = arguments[parameter.name]
        if value is None or (parameter.is_tensor_list and not value):
            continue
        for dim in parameter.dims:
            if isinstance(dim, Variadic):
                if dim.name is not None:
                    found.setdefault(dim.name, []).append(parameter.name)
            elif isinstance(dim, Fixed):
                for name in expressions.names(dim.expression):
                    found.setdefault(name, []).append(parameter.name)
    return found


def _rounded(signature: Signature) -> frozenset[str]:
    """Return the dimensions that may fit the arguments with another size too.

    Either a declared size is computed from such a dimension and rounded, or the dimension is itself
    the solution of an equation, or occurs in an equation for another name.
    """
    found = {name for one in signature.equations for name in (one.name, *one.reads)}
    for parameter in signature.tensors:
        for dim in parameter.dims:
            if isinstance(dim, Fixed) and re.search(r"//|%|min|max", str(dim)):
                found |= expressions.names(dim.expression)
    return frozenset(found)


def _bad_tensor(
    signature: Signature,
    parameter: Parameter,
    arguments: dict[str, Any],
    sharing: dict[str, list[str]],
    rounded: frozenset[str],
) -> Iterator[_Bad]:
    name, value = parameter.name, arguments[parameter.name]
    type_ = parameter.tensor_type
    assert type_ is not None and isinstance(value, Tensor)
    others = [
        p.name
        for p in signature.tensors
        if p.is_tensor and p.name != name and arguments[p.name] is not None
    ]
    if others:
        elsewhere = torch.empty_like(value, device="meta")
        yield _Bad(
            f"{name!r} on another device", _with(arguments, name, elsewhere), (name, *others)
        )
    if parameter.mutated:
        overlapping = _overlapping(value)
        if overlapping is not None:
            what = f"{name!r} with elements in one place: strides {overlapping.stride()}"
            yield _Bad(what, _with(arguments, name, overlapping), (name,))
    if type_.shape is None:
        return
    variadic = type_.shape.variadic is not None
    if not variadic:
        yield _Bad(
            f"{name!r} with one dimension more", _with(arguments, name, value.unsqueeze(0)), (name,)
        )
    if type_.shape.rank:
        few = value.new_zeros((1,) * (type_.shape.rank - 1))
        yield _Bad(f"{name!r} with too few dimensions", _with(arguments, name, few), (name,))
    for bad, names in _bad_sizes(name, type_, arguments, sharing):
        yield replace(bad, perhaps=bool(names & rounded))
    other = _other_dtype(type_, value, signature, arguments)
    if other is not None:
        yield _Bad(
            f"{name!r} of dtype {dtype_name(other)}",
            _with(arguments, name, torch.zeros_like(value, dtype=other)),
            (name, *others),
            castable=other.is_floating_point,
        )


def _overlapping(value: Tensor) -> Tensor | None:
    """Return a tensor of the same shape whose elements share memory, if possible."""
    long = [axis for axis, size in enumerate(value.shape) if size > 1]
    if not long or not value.numel():
        return None
    strides = list(value.contiguous().stride())
    # The strides of ``unfold(0, n, 1)``, or those of ``expand`` for a single dimension.
    strides[long[0]] = strides[long[1]] if len(long) > 1 else 0
    return value.contiguous().as_strided(value.shape, strides)


def _bad_sizes(
    name: str, type_: TensorType, arguments: dict[str, Any], sharing: dict[str, list[str]]
) -> Iterator[tuple[_Bad, frozenset[str]]]:
    """Yield arguments with one size too large, and the dimensions that the size depends on."""
    value: Tensor = arguments[name]
    assert type_.shape is not None
    wide = value.dim() > type_.shape.rank
    for axis, dim in type_.shape.axes():
        if isinstance(dim, Variadic):
            if dim.name is not None and wide and len(sharing[dim.name]) > 1:
                bad = _larger(name, value, axis, str(dim), arguments, sharing[dim.name])
                yield bad, frozenset()
        elif isinstance(dim, Fixed):
            names = expressions.names(dim.expression)
            # A dimension that occurs once may have any size; a shared or computed size may not.
            shared = [owner for one in names for owner in sharing[one]]
            if not (isinstance(dim.expression, Name) and len(shared) < 2):
                yield _larger(name, value, axis, str(dim), arguments, [name, *shared]), names


def _larger(
    name: str, value: Tensor, axis: int, dim: str, arguments: dict[str, Any], named: list[str]
) -> _Bad:
    shape = list(value.shape)
    axis %= len(shape)
    shape[axis] += 1
    larger = value.new_zeros(shape)
    what = (
        f"{name!r} with {shape[axis]} instead of {shape[axis] - 1} as its dimension {axis} ({dim})"
    )
    return _Bad(what, _with(arguments, name, larger), tuple(named))


def _other_dtype(
    type_: TensorType, value: Tensor, signature: Signature, arguments: dict[str, Any]
) -> torch.dtype | None:
    """Return a dtype that the argument may not have in this call."""
    position = signature.variable_position(type_)
    if position is None:
        return next(DTYPES[n] for n in ("int64", "float32") if n != type_.dtypes.names[0])
    variable = signature.dtype_variables[position]
    allowed = [variable.dtype_of(type_.dtypes, name) for name in variable.names]
    for name in ("int32", "float32", "float64", "complex64", "bool"):
        if name not in allowed:
            return DTYPES[name]
    # Every dtype is allowed, but one call uses the same dtype for all arguments.
    sharing = [
        p
        for p in signature.tensors
        if p.tensor_type
        and signature.variable_position(p.tensor_type) == position
        and p.is_tensor
        and arguments[p.name] is not None
    ]
    if len(sharing) < 2:
        return None
    return torch.float64 if value.dtype != torch.float64 else torch.float32


def _bad_list(
    signature: Signature, parameter: Parameter, arguments: dict[str, Any]
) -> Iterator[_Bad]:
    name, value = parameter.name, arguments[parameter.name]
    if name in signature.nonempty:
        yield _Bad(f"{name!r} without tensors", _with(arguments, name, []), (name,))
    given = [one for one in signature.tensors if arguments[one.name] is not None]
    alike = lists_like(parameter, given)
    if parameter.mutated and value[0].numel():
        more = {one: [*arguments[one], arguments[one][0].clone()] for one in alike}
        twice = {**arguments, **more, name: [*value, value[0]]}
        yield _Bad(f"{name!r} with one tensor twice", twice, (name,))
    if len(alike) > 1:
        fewer = _with(arguments, name, value[:-1])
        yield _Bad(f"{name!r} without its last tensor", fewer, alike)
    type_ = parameter.tensor_type
    if type_ is None or type_.shape is None:
        return
    yield from _bad_items(signature, parameter, type_.shape, arguments, alike)
    if type_.shape.variadic is not None:
        return
    longer = [value[0].unsqueeze(0), *value[1:]]
    yield _Bad(f"{name!r}[0] with one dimension more", _with(arguments, name, longer), (name,))
    for axis, dim in enumerate(type_.shape.dims):
        # The first element may determine the size, which the others have to match.
        if len(value) > 1 and isinstance(dim, Fixed):
            shape = list(value[-1].shape)
            shape[axis] += 1
            wider = [*value[:-1], value[-1].new_zeros(shape)]
            what = f"{name!r}[{len(value) - 1}] with {shape[axis]} as its dimension {axis} ({dim})"
            yield _Bad(what, _with(arguments, name, wider), (name,))


def _bad_items(
    signature: Signature,
    parameter: Parameter,
    shape: Shape,
    arguments: dict[str, Any],
    alike: tuple[str, ...],
) -> Iterator[_Bad]:
    """Yield a list whose last tensor has a size that no list has at this place."""
    name, value = parameter.name, arguments[parameter.name]
    types = [signature.by_name[one].tensor_type for one in alike]
    shared = [dim.item for type_ in types if type_ for _, dim in item_dims(type_.shape)]
    for axis, dim in item_dims(shape):
        if shared.count(dim.item) < 2:
            continue
        sizes = list(value[-1].shape)
        start = axis if axis >= 0 else len(sizes) + axis
        if isinstance(dim, Variadic) and len(sizes) == shape.rank:
            sizes.insert(start, 1)
        else:
            sizes[start] += 1
        other = [*value[:-1], value[-1].new_zeros(sizes)]
        what = f"{name!r}[{len(value) - 1}] with {sizes[start]} as its dimension {start} ({dim})"
        yield _Bad(what, _with(arguments, name, other), alike)


def _bad_sequence(
    parameter: Parameter, type_: SequenceType, arguments: dict[str, Any]
) -> Iterator[_Bad]:
    if type_.length is None:
        return
    name, value = parameter.name, arguments[parameter.name]
    longer = [*value, value[-1] if len(value) else 0]
    yield _Bad(f"{name!r} with {len(longer)} elements", _with(arguments, name, longer), (name,))
