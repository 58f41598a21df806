"""Measure the difference between an artifact and PyTorch by running both on sampled inputs."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator, Sequence

import torch
from torch import Tensor
from torch.export.graph_signature import InputKind

from opsmith.compat import torch_pytree as pytree
from opsmith.errors import CheckError, OpsmithError
from opsmith.kernels import HOST
from opsmith.operators.core.arguments import dtype_name
from opsmith.signature.sizes import expressions
from opsmith.targets.exporting.artifact import Agreement
from opsmith.targets.exporting.model import Model
from opsmith.targets.exporting.protocol import Runner

_TOLERANCE = {"float16": 2e-2, "bfloat16": 1e-1, "float32": 1e-3, "float64": 1e-9}
_MOST_GROWTH = 16
_LIKE_THE_EXAMPLE = (
    "On the example the two agree. These inputs, of sizes {}, have its numbers in other places: "
    "where the model takes no such inputs, pass verify=[args, ...] with those to compare on."
)


def compare(
    model: Model, runner: Runner, title: str, samples: Sequence[Sequence[object]] | None = None
) -> Agreement:
    """Run `model` in PyTorch and in `runner` on the same inputs, and compare.

    Args:
        title: the runtime's name, for messages.
        samples: positional arguments to compare on, in addition to the example; by default inputs
            like the example's, and inputs of other sizes that the export allows.

    Returns:
        The number of comparisons and the largest difference found.

    Raises:
        CheckError: results differ in number, shape or dtype, or by more than rounding explains.
    """
    reference: Callable[..., object] = model.module or model.program.module()
    if any(spec.kind is InputKind.CUSTOM_OBJ for spec in model.program.graph_signature.input_specs):
        # A call may change the user's object, so call a copy of it.
        reference = copy.deepcopy(reference)
    if samples is None:
        drawn: Iterator[list[Tensor]] = sampled_inputs(model)
    else:
        drawn = (model.flatten(sample, {}) for sample in samples)
    count, largest, output = 0, 0.0, ""
    example = model.flatten(model.args, model.kwargs)
    names = [spec.name for spec in model.outputs]
    for inputs in [example, *drawn]:
        args, kwargs = model.unflatten([value.clone() for value in inputs])
        try:
            with torch.no_grad():
                returned = reference(*args, **kwargs)
        except Exception:
            # If the model itself rejects a sampled size or value, the sample says nothing about the
            # runtime. An error on the example, or on the user's own samples, is raised.
            if inputs is example or samples is not None:
                raise
            continue
        wanted = [leaf for leaf in pytree.tree_leaves(returned) if isinstance(leaf, Tensor)]
        try:
            got = runner.run([value.clone().contiguous() for value in inputs])
            difference, name = largest_difference(names, wanted, got, title)
        except OpsmithError as error:
            if inputs is example and (drawing := _drawing(model)):
                said = f"The model draws random numbers ({drawing}): let it take them as an input."
                raise CheckError(f"{error} {said}") from None
            if inputs is example or samples is not None:
                raise
            sizes = ", ".join(str(tuple(value.shape)) for value in inputs)
            raise CheckError(f"{error}\n{_LIKE_THE_EXAMPLE.format(sizes)}") from error
        count += 1
        if difference >= largest:
            largest, output = difference, name
    return Agreement(count, largest, output)


def largest_difference(
    names: Sequence[str], wanted: Sequence[Tensor], got: Sequence[Tensor], title: str
) -> tuple[float, str]:
    """Compare a runtime's results with PyTorch's.

    Args:
        names: name of each of `wanted`.
        wanted: PyTorch's results.
        got: the runtime's results.
        title: the runtime's name, for messages.

    Returns:
        The largest difference, divided by the largest absolute value, and the name of its output.
    """
    if len(wanted) != len(got):
        raise CheckError(f"{title} returned {len(got)} tensors, PyTorch {len(wanted)}")
    largest, name = 0.0, ""
    for output, expected, found in zip(names, wanted, got, strict=True):
        if expected.shape != found.shape or expected.dtype != found.dtype:
            raise CheckError(
                f"{title} returned {output!r} as {found.dtype} {tuple(found.shape)}, PyTorch as "
                f"{expected.dtype} {tuple(expected.shape)}"
            )
        difference = relative_difference(expected, found)
        # Results that are not floats are rounded last, so rounding explains a difference of one
        # step.
        tolerance = _TOLERANCE.get(dtype_name(expected.dtype), 1.0)
        if not difference <= tolerance:
            raise CheckError(
                f"{title} disagrees with PyTorch in the output {output!r}: the largest "
                f"difference is {difference:.3g} of the largest value, allowed is {tolerance:g}. "
                "Nothing was written. Pass verify=False to export all the same."
            )
        if difference >= largest:
            largest, name = difference, output
    return largest, name


def _drawing(model: Model) -> str:
    """Return an operation of a model that draws random numbers; dropout does so in training."""
    named = [node.target for node in model.program.graph.nodes if hasattr(node.target, "tags")]
    drawing = [str(one) for one in named if torch.Tag.nondeterministic_seeded in one.tags]
    return next((one for one in drawing if "dropout" not in one), "")


def relative_difference(expected: Tensor, found: Tensor) -> float:
    """Return the largest absolute difference over the largest absolute value.

    The result is infinite if only one of the two has a NaN in some element.
    """
    if expected.numel() == 0:
        return 0.0
    wide = torch.complex128 if expected.is_complex() else torch.float64
    a, b = expected.detach().to(HOST, wide), found.detach().to(HOST, wide)
    apart = (a - b).abs()
    # Equal infinities agree, and so do two NaNs.
    same = (a == b) | (a.isnan() & b.isnan())
    apart = torch.where(same, torch.zeros_like(apart), apart)
    finite = a.abs()[a.isfinite()]
    scale = float(finite.max()) if finite.numel() else 0.0
    worst = float(apart.nan_to_num(math.inf).max())
    return 0.0 if worst == 0 else worst / scale if scale else math.inf


def sampled_inputs(model: Model, count: int = 4, seed: int = 0) -> Iterator[list[Tensor]]:
    """Yield inputs like the example's, with other floats, and other sizes if the export allows any.

    Rows, along the last dimension, change places as a whole: a column of them may hold numbers of
    images or classes. In rows that are equal, fractions are made smaller. Integers stay as
    they are, since only the model knows which are indices, and no size falls to a number that an
    input holds, which may be an index of what would be gone.
    """
    generator = torch.Generator().manual_seed(seed)
    example = model.flatten(model.args, model.kwargs)
    yield [_shuffled(value, generator) for value in example]
    for chosen in _other_shapes(model, example, count):
        if not _names_what_is_gone(example, chosen):
            yield [
                _shuffled(_resized(value, shape), generator)
                for value, shape in zip(example, chosen, strict=True)
            ]


def _names_what_is_gone(example: Sequence[Tensor], shapes: Sequence[Sequence[int]]) -> bool:
    """Return whether a value is the number of a place that smaller sizes leave out."""
    gone = {
        place
        for value, shape in zip(example, shapes, strict=True)
        for have, size in zip(value.shape, shape, strict=True)
        for place in range(size, have)
    }
    numbers = torch.tensor(sorted(gone), dtype=torch.float64)
    real = [value.double() for value in example if gone and not value.is_complex()]
    return any(bool(torch.isin(value, numbers).any()) for value in real)


def _shuffled(value: Tensor, generator: torch.Generator) -> Tensor:
    if not value.is_floating_point() or value.numel() == 0:
        return value
    rows = value.reshape(-1, value.shape[-1] if value.dim() > 1 else 1)
    if not bool((rows == rows[0]).all()):
        return rows[torch.randperm(len(rows), generator=generator)].reshape(value.shape)
    # Equal rows say too little. Their numbers become smaller: of equal ones, an index stays one.
    wide = value.double()
    share = 0.99 * torch.rand(value.shape, generator=generator, dtype=torch.float64)
    smaller = torch.where(wide == 0, share, wide * (1 + share) / 2)
    stays = (wide == wide.round()) & bool((rows != rows[0, 0]).any())
    return torch.where(stays, wide, smaller).to(value.dtype)


def _resized(value: Tensor, shape: Sequence[int]) -> Tensor:
    """Return `value` repeated or cut to `shape`."""
    for axis, size in enumerate(shape):
        have = value.shape[axis]
        if have != size:
            if have == 0:
                return torch.zeros(tuple(shape), dtype=value.dtype)
            value = value.index_select(axis, torch.arange(size) % have)
    return value


def _other_shapes(
    model: Model, example: Sequence[Tensor], count: int
) -> Iterator[list[tuple[int, ...]]]:
    """Yield the inputs' shapes for a few other sizes of the symbols."""
    bound: dict[str, int] = {}
    for spec, value in zip(model.inputs, example, strict=True):
        for size, have in zip(spec.shape, value.shape, strict=True):
            if isinstance(size, str) and size in model.dims:
                bound[size] = have
    if not bound:
        return
    seen = [bound]
    for grown in (lambda n: n + 1, lambda n: 2 * n, lambda n: max(n - 1, 1), lambda n: 3 * n + 1):
        sizes = {}
        for name, have in bound.items():
            low, high = model.dims[name]
            limit = max(have, 1) * _MOST_GROWTH if high is None else high
            sizes[name] = max(min(grown(have), limit), low)
        if sizes in seen or len(seen) > count:
            continue
        seen.append(sizes)
        try:
            yield [
                tuple(size if isinstance(size, int) else _value(size, sizes) for size in spec.shape)
                for spec in model.inputs
            ]
        except (expressions.ExpressionError, KeyError, ZeroDivisionError):
            return


def _value(size: str, sizes: dict[str, int]) -> int:
    return int(expressions.evaluate(expressions.parse(size), sizes, {}))
