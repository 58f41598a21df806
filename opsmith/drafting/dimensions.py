"""Find a call's free sizes, the equal ones among them, and formulas for the sizes of results.

The operator is a black box: it accepts a call or not, and its results have shapes.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from opsmith.drafting.subject import Spec
from opsmith.operators.core.arguments import map_tensors

_LETTERS = {1: "N", 2: "NC", 3: "NCL", 4: "NCHW", 5: "NCDHW"}
_MORE = "MKPQRSTUVXYZ"
#: A dimension in a call: the argument and the axis. All tensors of a list share their axes.
Axis = tuple[str, int]
_UP, _DOWN = (1, 3), (-1, -2)
_FACTORS = (2, 3, 4)
Results = Callable[[Mapping[str, Any]], "list[Any] | None"]


@dataclass(frozen=True)
class Sizes:
    """The sizes of a call's tensors.

    Attributes:
        names: the name of each free axis; axes of the same name have equal sizes.
        values: the arguments of a call that the operator accepts.
        factors: what the sizes of a name are multiples of, where that is more than 1: 2 for
            ``2*C``.
    """

    names: Mapping[Axis, str]
    values: Mapping[str, Any]
    factors: Mapping[str, int] = field(default_factory=dict)

    @property
    def all(self) -> dict[str, int]:
        """Return the size of each name in `values`."""
        return {
            name: _size(self.values, axis) // self.factors.get(name, 1)
            for axis, name in self.names.items()
        }

    def at(
        self, sizes: Mapping[str, int], scalars: Mapping[str, Any] | None = None
    ) -> dict[str, Any]:
        """Return the call with other sizes, and optionally other scalars."""
        changed = dict(self.values)
        for axis, name in self.names.items():
            changed = _with(changed, axis, sizes[name] * self.factors.get(name, 1))
        return {**changed, **(scalars or {})}

    def text(self, argument: str) -> str:
        """Return the shape of an argument as a declaration writes it."""
        spec = _first(self.values[argument])
        axes = range(len(spec.shape))
        names = [self.names.get((argument, k), str(spec.shape[k])) for k in axes]
        return " ".join(f"{self.factors[n]}*{n}" if n in self.factors else n for n in names)

    def vary(self, count: int) -> Iterator[dict[str, int]]:
        """Yield sizes slightly above the call's, since one may have to be below another."""
        draw = random.Random(0)
        for _ in range(count):
            yield {name: size + draw.randint(1, 5) for name, size in self.all.items()}


def axes_of(values: Mapping[str, Any]) -> list[Axis]:
    """Return every axis of every tensor of a call."""
    return [
        (name, axis)
        for name, value in values.items()
        if _first(value) is not None
        for axis in range(len(_first(value).shape))
    ]


def specs(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return a call with a `Spec` in place of each tensor."""
    return {
        name: map_tensors(value, lambda t: Spec(tuple(t.shape), t.dtype))
        for name, value in values.items()
    }


def infer(values: Mapping[str, Any], results: Results) -> Sizes:
    """Find the free sizes of a call by changing each axis, alone or with axes of equal size."""
    groups: list[list[Axis]] = []
    multiples: dict[Axis, int] = {}
    left = axes_of(values)
    while left:
        axis = left[0]
        group = _group(values, axis, left, results)
        # The axis may have to equal a size that other axes can change without it: an index has as
        # many rows as the values, but the values may have more rows than the index.
        joined = next(
            (one for one in groups if not group and _change(values, [*one, axis], _UP, results)),
            None,
        )
        if joined is not None:
            joined.append(axis)
        elif group or _change(values, [axis], _DOWN, results):
            groups.append(group or [axis])
        else:
            for factor in _FACTORS:
                if not group and _size(values, axis) % factor == 0:
                    group = _group(values, axis, left, results, (factor, 3 * factor))
                    groups += [group] if group else []
                    multiples.update(dict.fromkeys(group, factor))
        left = [one for one in left if one != axis and one not in group]
    names: dict[Axis, str] = {}
    for group in groups:
        name = _name(values, group[0], set(names.values()))
        names.update(dict.fromkeys(group, name))
    order = axes_of(values)
    return Sizes(
        dict(sorted(names.items(), key=lambda item: order.index(item[0]))),
        values,
        {names[axis]: factor for axis, factor in multiples.items()},
    )


def _group(
    values: Mapping[str, Any],
    axis: Axis,
    left: Sequence[Axis],
    results: Results,
    steps: Sequence[int] = _UP,
) -> list[Axis]:
    """Return the axes that must grow together with an axis; empty if it must not grow."""

    def grow(axes: Sequence[Axis]) -> bool:
        return _change(values, axes, steps, results)

    if grow([axis]):
        return [axis]
    alike = [one for one in left if _size(values, one) == _size(values, axis)]
    for one in alike[1:]:
        if grow([axis, one]):
            return [axis, one]
    if len(alike) < 2 or not grow(alike):
        return []
    for one in alike[1:]:
        fewer = [other for other in alike if other != one]
        if len(fewer) > 1 and grow(fewer):
            alike = fewer
    return alike


def _change(
    values: Mapping[str, Any], axes: Sequence[Axis], steps: Sequence[int], results: Results
) -> bool:
    """Return whether the operator accepts other sizes for these axes, the same for all."""
    size = _size(values, axes[0])
    if size + min(steps) < 2 or any(_size(values, one) != size for one in axes):
        return False
    for step in steps:
        changed = dict(values)
        for one in axes:
            changed = _with(changed, one, size + step)
        if results(changed) is None:
            return False
    return True


def _name(values: Mapping[str, Any], axis: Axis, taken: set[str]) -> str:
    argument, position = axis
    rank = len(_first(values[argument]).shape)
    usual = _LETTERS.get(rank, "")
    wanted = [usual[position]] if usual else []
    return next(
        name
        for name in itertools.chain(wanted, _MORE, (f"D{n}" for n in itertools.count()))
        if name not in taken
    )


def _first(value: Any) -> Any:
    """Return a tensor argument, or the first tensor of a list; `None` for other arguments."""
    if isinstance(value, list):
        value = value[0] if value else None
    return value if hasattr(value, "shape") else None


def _size(values: Mapping[str, Any], axis: Axis) -> int:
    return int(_first(values[axis[0]]).shape[axis[1]])


def _with(values: Mapping[str, Any], axis: Axis, size: int) -> dict[str, Any]:
    name, position = axis

    def resized(spec: Spec) -> Spec:
        shape = list(spec.shape)
        shape[position] = size
        return replace(spec, shape=tuple(shape))

    value = values[name]
    changed = [resized(one) for one in value] if isinstance(value, list) else resized(value)
    return {**values, name: changed}


def any_rank(sizes: Sizes, results: Results) -> bool:
    """Return whether the operator works elementwise: all shapes equal, of any rank."""
    shapes = {tuple(sizes.text(name).split()) for name, _ in sizes.names}
    tensors = [name for name, value in sizes.values.items() if _first(value) is not None]
    if len(shapes) != 1 or len({name for name, _ in sizes.names}) != len(tensors):
        return False

    def alike(shape: tuple[int, ...]) -> bool:
        def shaped(value: Any) -> Any:
            if isinstance(value, list):
                return [shaped(one) for one in value]
            return replace(value, shape=shape) if isinstance(value, Spec) else value

        found = results({name: shaped(value) for name, value in sizes.values.items()})
        return found is not None and all(
            isinstance(one, Spec) and one.shape == shape for one in found
        )

    return all(map(alike, ((), (5,), (2, 3), (3, 1, 2), (2, 3, 4, 5), (2, 1, 3, 2, 2))))


def result_shapes(
    sizes: Sizes, scalars: Mapping[str, Sequence[Any]], named: Collection[str], results: Results
) -> list[str | None] | None:
    """Find the shape of each result as a declaration writes it; return `None` if none is found.

    Args:
        sizes: a call whose sizes can be changed.
        scalars: values to try for each argument that is not a tensor.
        named: the scalars that a shape may name.
        results: a function that returns the operator's results.
    """
    draw = random.Random(1)
    seen: list[tuple[dict[str, Any], list[Any]]] = []
    for one in sizes.vary(40):
        chosen = {name: _drawn(draw, values) for name, values in scalars.items()}
        returned = results(sizes.at(one, chosen))
        if returned is not None:
            seen.append(({**one, **chosen}, returned))
    if len(seen) < 4 or not all(isinstance(x, Spec) for _, found in seen for x in found):
        return None
    if len({tuple(len(x.shape) for x in found) for _, found in seen}) != 1:
        return None
    terms = {name: scalars[name] for name in scalars if name in named}
    shapes: list[str | None] = []
    for position, result in enumerate(seen[0][1]):
        words = []
        for axis in range(len(result.shape)):
            observed = [(known, found[position].shape[axis]) for known, found in seen]
            word = next((w for w in _expressions(sizes, terms) if _fits(w, observed)), None)
            if word is None:
                return None
            words.append(word)
        shapes.append(" ".join(words))
    return shapes


def _drawn(draw: random.Random, values: Sequence[Any]) -> Any:
    """Draw one of several values; if they are lists, draw each element separately."""
    chosen = draw.choice(list(values))
    if not isinstance(chosen, list):
        return chosen
    lists = [one for one in values if isinstance(one, list) and len(one) == len(chosen)]
    return [draw.choice(lists)[k] for k in range(len(chosen))]


def _fits(word: str, observed: Sequence[tuple[Mapping[str, Any], int]]) -> bool:
    try:
        return all(size_of(word, known) == n for known, n in observed)
    except (ArithmeticError, IndexError, TypeError):  # an optional number may be None
        return False


def size_of(word: str, known: Mapping[str, Any]) -> int:
    """Return the value of a size such as ``(H+2*{padding[0]}-K)//{stride}+1``."""
    code = compile(word.replace("{", "(").replace("}", ")"), "<size>", "eval")
    return int(eval(code, {"__builtins__": {}}, dict(known)))


def _expressions(sizes: Sizes, scalars: Mapping[str, Sequence[Any]]) -> Iterator[str]:
    """Yield expressions to try, the simplest first."""
    free = list(sizes.all)
    lists = {n: len(v[0]) for n, v in scalars.items() if isinstance(v[0], list | tuple)}
    terms = [f"{{{name}}}" for name in scalars if name not in lists]
    terms += [f"{{{name}[{k}]}}" for name, length in lists.items() for k in range(length)]
    yield from free
    yield from map(str, range(12))
    yield from terms
    for one in free:
        for n in (2, 3, 4):
            yield from (f"{n}*{one}", f"{one}//{n}", f"({one}+{n - 1})//{n}")
        yield from (f"{one}+1", f"{one}-1", f"{one}+2", f"{one}-2", f"2*{one}-1", f"{one}//2+1")
        for term in terms:
            yield from (f"{one}*{term}", f"{one}+{term}", f"{one}-{term}", f"{one}//{term}")
            yield from (f"{one}+2*{term}", f"({one}+{term}-1)//{term}", f"{one}-{term}+1")
            yield f"{one}*{term}*{term}"
            yield f"{one}//({term}*{term})"
    for count in (2, 3, 4):
        for several in itertools.combinations(free, count):
            yield "*".join(several)
            yield "+".join(several)
    for left, right in itertools.permutations(free, 2):
        yield from (f"{left}-{right}", f"{left}-{right}+1", f"{left}*{right}//2")
    yield from _windows(free, lists, terms, sizes)


def _windows(
    free: Sequence[str], lists: Mapping[str, int], terms: Sequence[str], sizes: Sizes
) -> Iterator[str]:
    """Yield the number of positions of a window, of convolutions, poolings and their transposes."""
    fixed = sorted({n for axis in axes_of(sizes.values) if (n := _size(sizes.values, axis)) < 8})

    def named(*words: str) -> list[str]:
        return [term for term in terms if any(word in term for word in words)]

    steps, pads, spreads = named("stride"), named("pad"), named("dilation")
    windows = [*free, *named("kernel", "window"), *map(str, fixed)]
    for one, window, pad, step, spread in itertools.product(
        free, windows, pads or ["0"], steps or ["1"], spreads or ["1"]
    ):
        if len({term.partition("[")[2] for term in (window, pad, step, spread)} - {""}) < 2:
            yield f"({one}+2*{pad}-{spread}*({window}-1)-1)//{step}+1"
            for more in named("output_padding") or ["0"]:
                yield f"({one}-1)*{step}-2*{pad}+{spread}*({window}-1)+{more}+1"
