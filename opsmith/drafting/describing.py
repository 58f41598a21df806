"""Find everything that a declaration states about a subject, by calling it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch

from opsmith.drafting import dimensions, limits, meaning, writing
from opsmith.drafting.subject import DraftArgument, Origin, Spec
from opsmith.kernels import HOST


def sizes_of(subject: Origin, values: Mapping[str, Any]) -> tuple[dimensions.Sizes, str]:
    """Find the free sizes on ``meta``, or on the CPU if the fake kernel accepts too much."""
    sizes, device = _sizes_of(subject, values)
    for name, value in values.items():
        # A size that a number has to divide is best seen where the number is 1.
        fewer = {**values, name: 1}
        if sizes.factors and type(value) is int and value > 1 and subject.takes([fewer])[0]:
            found = _sizes_of(subject, fewer)
            if not found[0].factors:
                return found
    return sizes, device


def _sizes_of(subject: Origin, values: Mapping[str, Any]) -> tuple[dimensions.Sizes, str]:
    if subject.results(values, "meta") is not None:
        sizes = dimensions.infer(values, lambda call: subject.results(call, "meta"))
        taken = subject.takes([sizes.at(at) for at in sizes.vary(6)], traced=True)
        if sum(taken) * 2 > len(taken):
            return sizes, "meta"
    return dimensions.infer(values, lambda call: subject.results(call, HOST)), HOST


def described(
    subject: Origin, sizes: dimensions.Sizes, device: str, given: Mapping[str, Any]
) -> writing.Draft:
    """Find everything that a declaration states, by calls with these sizes.

    Args:
        subject: the operator or function to call.
        sizes: a call of it, and its free sizes.
        device: the device for finding shapes of results.
        given: the call as it was found, with the tensors of an example.
    """
    found = _limits_of(subject, sizes)
    # An empty list shows nothing about the tensors that it may hold. A tensor in place of its shape
    # and dtype is there because the operator does not take any numbers.
    tensors = [sizes.values[one.name] for one in subject.arguments if one.is_tensors]
    all_seen = not any(one == [] or isinstance(one, torch.Tensor) for one in tensors)
    all_known = all_seen and all(one.known for one in found.values())
    sampled = all_known and subject.survives(_wild(sizes))
    floats = limits.dtypes(subject, sizes.values)
    returned = subject.results(sizes.values, HOST)
    assert returned is not None, "the example was taken"
    listed = [isinstance(one, list) for one in returned]
    dependent, _ = _data_dependent(subject, sizes, None)
    if dependent and any(map(_is_integer, sizes.values.values())):
        sampled = False  # a number may ask for any amount of memory
    means = plain = meaning.Meaning([()] * len(returned), {}, ())
    if sampled and not dependent and not any(listed):
        means = meaning.found(subject, sizes, floats, len(returned))

    def on_device(call: Mapping[str, Any]) -> list[Any] | None:
        return subject.results(call, device)

    pinned = {name: limits.pinned(sizes.values[name]) for name in means.pinned}
    narrowed = {**found, **pinned}
    shapes, worded = _shapes(subject, sizes, narrowed, on_device, any(means.results))
    if pinned and worded is None:  # a mark stands beside no plain ``Tensor``
        narrowed, means = found, replace(plain, arguments=means.arguments)
        shapes, worded = _shapes(subject, sizes, narrowed, on_device)
    found = narrowed
    scalars = {
        one.name: _tried(one, found, sizes) for one in subject.arguments if not one.is_tensors
    }
    where = limits.nonempty_results(subject, sizes, scalars, worded or ())
    dependent, worded = _data_dependent(subject, sizes, worded)
    if worded and _options_unseen(subject, sizes.values, worded):
        worded = None
    if worded and not dependent:
        fewer = [{**sizes.values, k: v[:1]} for k, v in sizes.values.items() if _is_specs(v)]
        if any(_differs(subject, worded, sizes.all, call) for call in fewer):
            worded = None
    if worded and not dependent:
        small = [(name, size, {**sizes.all, name: size}) for name in sizes.all for size in (0, 1)]
        axes = [{}, *({n: v} for n, several in scalars.items() for v in several if type(v) is int)]
        wrong = {
            name: size
            for name, size, at in small
            if any(_differs(subject, worded, at, sizes.at(at, one)) for one in axes)
        }
        where = (*where, *(f"{name} >= {size + 1}" for name, size in wrong.items()))
    variables = limits.index_dtypes(subject, sizes.values)
    labels = _labels(subject, sizes.values, floats, variables)
    results = list(zip(labels, worded or [None] * len(labels), strict=True))
    if not all(label and shape is not None for label, shape in results):
        results, dependent = [(label, None) for label, _ in results], []
    # The example's numbers may restrict sizes that are free with those of `sizes`.
    tensors = [one.name for one in subject.arguments if one.is_tensors]
    seen = {name: given[name] for name in tensors if given.get(name) is not None}
    shown = {**sizes.values, **seen}
    return writing.Draft(
        subject,
        shown,
        shapes,
        results,
        listed,
        floats,
        found,
        dependent,
        sampled,
        variables=variables,
        means=means,
        where=where,
    )


def _wild(sizes: dimensions.Sizes) -> list[dict[str, Any]]:
    """Return calls as a check draws them: numbers of any magnitude, flags, and sizes of 0."""
    generator = torch.Generator().manual_seed(0)

    def draw(value: Any, scale: float) -> Any:
        if isinstance(value, list):
            return [draw(one, scale) for one in value]
        if not isinstance(value, Spec) or not value.dtype.is_floating_point:
            return value
        return scale * torch.randn(value.shape, generator=generator, dtype=value.dtype)

    drawn = [
        {name: draw(value, scale) for name, value in sizes.at(at).items()}
        for scale in (1.0, 1e3, 1e19)
        for at in sizes.vary(6)
    ]
    flags = [name for name, value in sizes.values.items() if isinstance(value, bool)]
    drawn += [{**sizes.values, name: not sizes.values[name]} for name in flags]
    return [*drawn, *(sizes.at({**sizes.all, name: 0}) for name in sizes.all)]


def _limits_of(subject: Origin, sizes: dimensions.Sizes) -> dict[str, limits.ValueLimits]:
    """Return the limits of numbers and integer tensors among the arguments, by name."""
    found = {}
    for one in subject.arguments:
        if one.kind in ("int", "float", "ints", "floats"):
            found[one.name] = limits.of_number(subject, one, sizes)
        elif one.is_tensors and _is_integer(sizes.values[one.name]):
            found[one.name] = limits.of_integers(subject, one, sizes)
    return found


def _shapes(
    subject: Origin,
    sizes: dimensions.Sizes,
    found: dict[str, limits.ValueLimits],
    results: dimensions.Results,
    marked: bool = False,
) -> tuple[dict[str, str], list[str | None] | None]:
    """Return shapes of arguments, and of results if they follow; this may narrow `found`.

    A mark of a result is about a dimension, so that the result has a rank where it is `marked`.
    """
    shapes = {
        one.name: sizes.text(one.name)
        for one in subject.arguments
        if one.is_tensors and sizes.values[one.name] not in (None, [])
    }
    scalars = {
        one.name: _tried(one, found, sizes) for one in subject.arguments if not one.is_tensors
    }
    named = [
        one.name
        for one in subject.arguments
        if one.kind in ("int", "ints") and not one.optional and not one.written
    ]
    limited = [name for name in named if found[name].text]
    if not limited and not marked and dimensions.any_rank(sizes, results):
        count = len(results(sizes.values) or ())
        return dict.fromkeys(shapes, "*shape"), ["*shape"] * count
    worded = dimensions.result_shapes(sizes, scalars, named, results)
    indices = [one.name for one in subject.arguments if one.is_tensors and one.name in found]
    if worded is None and any(found[name].text for name in indices):
        # The axis argument decides which values an index may have, so declare a single axis.
        pins = {name: limits.pinned(sizes.values[name]) for name in limited}
        fewer = {name: pins[name].tried if name in pins else scalars[name] for name in scalars}
        worded = dimensions.result_shapes(sizes, fewer, named, results)
        found.update(pins)
    return shapes, worded


def _options_unseen(
    subject: Origin, values: Mapping[str, Any], worded: Sequence[str | None]
) -> bool:
    """Return whether other options, which no call has shown, may give results of other shapes.

    A result that is always empty is one that another option may fill; and a flag may need a tensor
    that the example leaves out (`training=False` takes the running mean).
    """
    flags = [one.name for one in subject.arguments if one.kind == "bool"]
    optional = flags or any(one.kind == "str" for one in subject.arguments)
    if optional and any(word and "0" in word.split() for word in worded):
        return True
    absent = any(one.is_tensors and values[one.name] is None for one in subject.arguments)
    return absent and not all(subject.takes([{**values, one: not values[one]} for one in flags]))


def _is_specs(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and isinstance(value[0], Spec)


def _differs(
    subject: Origin, worded: Sequence[str | None], sizes: Mapping[str, int], call: Mapping[str, Any]
) -> bool:
    """Return whether a call that is accepted gives other shapes than those that were found."""
    seen = subject.results(call, HOST) or []
    known = {**call, **sizes}
    return any(
        word is not None
        and isinstance(one, Spec)
        and not word.startswith("*")
        and [dimensions.size_of(each, known) for each in word.split()] != list(one.shape)
        for word, one in zip(worded, seen, strict=False)
    )


def _tried(
    one: DraftArgument, found: Mapping[str, limits.ValueLimits], sizes: dimensions.Sizes
) -> tuple[Any, ...]:
    """Return values of a non-tensor argument, among them all that change the shapes of results."""
    if one.kind == "bool":
        return (False, True)
    tried = found[one.name].tried if one.name in found else (sizes.values[one.name],)
    return (*tried, None) if one.optional else tried


def _is_integer(value: Any) -> bool:
    if isinstance(value, list):
        return bool(value) and _is_integer(value[0])
    if not isinstance(value, Spec):
        return False
    return not value.dtype.is_floating_point and value.dtype != torch.bool


def _labels(
    subject: Origin,
    values: Mapping[str, Any],
    floats: tuple[torch.dtype, ...],
    variables: Mapping[str, str],
) -> list[str]:
    """Return a name for each result's dtype; empty if no name expresses how it follows."""

    def seen_in(call: Mapping[str, Any]) -> list[torch.dtype]:
        returned = subject.results(call, HOST) or []
        return [one[0].dtype if isinstance(one, list) else one.dtype for one in returned]

    seen = [seen_in(limits.with_dtype(values, one)) for one in floats or (torch.float32,)]
    others: dict[str, Any] = {
        one.name: not values[one.name] if one.kind == "bool" else None
        for one in subject.arguments
        if one.kind == "bool" or (one.is_tensors and one.optional)
    }
    if any(seen_in({**values, k: v}) not in ([], seen_in(values)) for k, v in others.items()):
        return [""] * len(seen[0])
    labels = []
    for column in zip(*seen, strict=True):
        if len(set(column)) == 1 and not (column[0].is_floating_point and len(floats) > 1):
            labels.append(writing.label(column[0], ()))
        else:
            labels.append(writing.label(column[0], floats) if column == floats else "")
    if variables:
        changed = seen_in(limits.with_index_dtype(values, list(variables)))
        for k, pair in enumerate(zip(seen_in(values), changed, strict=True)):
            if pair[0] != pair[1]:
                labels[k] = next(iter(variables.values()))
    return labels


def _rank(result: Any) -> int:
    return len(result.shape) if isinstance(result, Spec) else 0


def _data_dependent(
    subject: Origin, sizes: dimensions.Sizes, worded: list[str | None] | None
) -> tuple[list[str], list[str | None] | None]:
    """Return the sizes that depend on the tensors' values, and result shapes that name them."""
    runs = [subject.results(sizes.values, HOST, seed) for seed in range(4)]
    for number in (1, 5):  # integers are 0 in the others
        filled = {
            name: torch.full(value.shape, number, dtype=value.dtype)
            for name, value in sizes.values.items()
            if isinstance(value, Spec) and _is_integer(value)
        }
        runs += [subject.results({**sizes.values, **filled}, HOST)] if filled else []
    if subject.has_python_fake:
        runs.append(subject.traced(sizes.values))
    ran = [run for run in runs if run is not None]
    first = ran[0]
    known = [run for run in ran if list(map(_rank, run)) == list(map(_rank, first))]
    if not all(isinstance(one, Spec) for run in known for one in run):
        return [], worded
    moving = [
        {k for run in known for k in range(len(one.shape)) if run[n].shape[k] != one.shape[k]}
        for n, one in enumerate(first)
    ]
    if not any(moving):
        return [], worded
    name = next(letter for letter in "KMPQ" if letter not in sizes.names.values())
    shapes = [
        [name if axis in axes else None for axis in range(len(one.shape))]
        for one, axes in zip(first, moving, strict=True)
    ]
    return _completed(sizes, shapes, first, name)


def _completed(
    sizes: dimensions.Sizes, shapes: list[list[str | None]], first: list[Any], name: str
) -> tuple[list[str], list[str | None] | None]:
    by_size = {size: free for free, size in sizes.all.items()}
    texts: list[str | None] = []
    for shape, spec in zip(shapes, first, strict=True):
        words = [
            word or by_size.get(size, str(size))
            for word, size in zip(shape, spec.shape, strict=True)
        ]
        texts.append(" ".join(words))
    return [name], texts
