"""Choose cases that reveal a wrongly baked-in constant: number, flag, string, absent argument.

An export turns everything but the values and sizes of tensors into constants. A mapping that drops
a constant, or uses a wrong one, is right for the value that it was tried with. So for each
constant, at least two cases are chosen that differ in it, and in which the other value changes the
reference's result.
"""

from __future__ import annotations

import itertools
import time
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from opsmith.checks.cases.case import Case
from opsmith.checks.cases.reference_call import run_reference
from opsmith.checks.cases.reruns.registered_cases import MODEST
from opsmith.checks.cases.sampling import cases
from opsmith.checks.cases.search import search
from opsmith.checks.cases.wanted import Wanted
from opsmith.checks.numerics.torch_threads import threads
from opsmith.checks.trial.trial import Trial
from opsmith.signature import Parameter, Signature
from opsmith.signature.sizes.shapes import Variadic
from opsmith.targets import relative_difference

#: Number of combinations that one export is compared on.
MOST = 8
_SAMPLES = 60
_SECONDS = 3.0
#: Number of other values of a parameter to try in a case before the parameter counts as without
#: effect in that case.
_ALTERNATIVES = 3
#: A relative change of the result that no tolerance hides.
_VISIBLE = 1e-2

_MATTERS, _UNSURE, _IDLE = 2, 1, 0


@dataclass(frozen=True)
class Telling:
    """The cases to export.

    Attributes:
        cases: cases of which no two agree in everything that an export fixes.
        untold: the parameters that never changed a result.
    """

    cases: Sequence[Case]
    untold: Sequence[str]


def telling_cases(
    trial: Trial, dtype: str | None, wanted: Wanted, keep: Callable[[Case], bool] | None
) -> Telling:
    """Choose cases among the author's cases and sampled ones.

    Args:
        dtype: the generic dtype.
        wanted: restricts the samples.
        keep: returns whether a case may be chosen.

    Returns:
        The chosen cases, and the parameters that never changed a result.
    """
    author = [case for case in trial.cases.author_cases(dtype) if case.numel <= MODEST]
    found = [case for case in author if keep is None or keep(case)]
    if not trial.cases.only_registered and _varies(trial.signature):
        sampled = _sampled(trial, replace(wanted, dtype=dtype))
        found += [case for case in sampled if keep is None or keep(case)]
    return _CaseChooser(trial, found).choose()


def _varies(signature: Signature) -> bool:
    """Return whether calls can differ in something that an export fixes."""
    return any(
        not parameter.is_tensor or parameter.optional or _variadic(parameter)
        for parameter in signature.parameters
    )


def _variadic(parameter: Parameter) -> bool:
    return any(isinstance(dim, Variadic) for dim in parameter.dims)


def _sampled(trial: Trial, wanted: Wanted) -> list[Case]:
    found: list[Case] = []
    seed = zlib.crc32(f"{trial.settings.seed} telling {wanted.dtype}".encode())
    search(
        cases(trial.signature, wanted),
        found.append,
        examples=_SAMPLES,
        seed=seed,
        seconds=_SECONDS,
        size=lambda case: case.numel,
    )
    return found


def facts(case: Case) -> dict[str, Any]:
    """Return the values that an export of a case fixes, by name."""
    found: dict[str, Any] = {}
    for parameter in case.signature.parameters:
        name, value = parameter.name, case.values[parameter.name]
        if parameter.is_tensor_list:
            found[name] = None if value is None else len(value)
        elif not parameter.is_tensor:
            found[name] = tuple(value) if isinstance(value, list | tuple) else value
        elif parameter.optional:
            found[name] = value is not None
        if isinstance(value, Tensor) and _variadic(parameter):
            found[f"the number of dimensions of {name!r}"] = value.dim()
    return found


def shown_facts(case: Case) -> str:
    """Return the numbers, flags and strings of a case, for messages."""
    parameters = case.signature.by_name
    return ", ".join(
        f"{name}={value!r}"
        for name, value in case.values.items()
        if not parameters[name].is_tensor and not parameters[name].is_tensor_list
    )


class _CaseChooser:
    """Chooses among candidates by their positions; the author's cases come first."""

    def __init__(self, trial: Trial, candidates: Sequence[Case]) -> None:
        self._trial = trial
        self._until = time.monotonic() + _SECONDS
        self._cases: list[Case] = []
        self._results: list[list[Tensor]] = []
        for case in candidates:
            result = self._reference(case.values)
            if result is not None:
                self._cases.append(case)
                self._results.append(result)
        self._facts = [facts(case) for case in self._cases]

    def choose(self) -> Telling:
        # A dictionary as an ordered set.
        chosen: dict[int, None] = {}
        untold = []
        for name in dict.fromkeys(name for found in self._facts for name in found):
            groups = self._groups(name)
            best = [self._best(name, positions, chosen) for positions in groups.values()]
            told = sorted((-quality, position) for position, quality in best if quality > _IDLE)
            if len(told) < 2:
                untold += [name] if name in self._trial.signature.by_name else []
                continue
            # Try every value of a string option, since each may select another branch; for a
            # number, two values are enough.
            texts = all(isinstance(value, str) for value in groups)
            chosen.update({position: None for _, position in (told if texts else told[:2])})
        # Always include the cases that the author registered.
        chosen.update({p: None for p, case in enumerate(self._cases) if case.origin})
        distinct = {repr(self._facts[position]): position for position in reversed(chosen)}
        kept = [position for position in chosen if position in distinct.values()]
        return Telling([self._cases[position] for position in kept[:MOST]], untold)

    def _groups(self, name: str) -> dict[Any, list[int]]:
        """Group the positions of the cases by the value of `name`."""
        groups: dict[Any, list[int]] = {}
        for position, found in enumerate(self._facts):
            if name in found:
                groups.setdefault(found[name], []).append(position)
        return groups

    def _best(
        self, name: str, positions: Sequence[int], chosen: Mapping[int, None]
    ) -> tuple[int, int]:
        """Return the case in which `name` matters most, preferably one that is already chosen."""
        best = (positions[0], _IDLE)
        for position in sorted(positions, key=lambda position: position not in chosen):
            quality = self._quality(position, name)
            if quality > best[1]:
                best = (position, quality)
            if quality == _MATTERS:
                break
        return best

    def _quality(self, position: int, name: str) -> int:
        case, found = self._cases[position], _IDLE
        parameter = case.signature.by_name.get(name)
        if parameter is None or parameter.is_tensor_list or time.monotonic() > self._until:
            return _UNSURE
        if parameter.is_tensor and case.values[name] is None:
            # Only a tensor could replace the absent argument, and there is none to try.
            return _UNSURE
        for other in self._others(case, parameter):
            result = self._reference({**case.values, name: other})
            if result is None:
                # The reference refuses this value in this case, so cases with the two values differ
                # in something else too.
                found = _UNSURE
            elif _differ(self._results[position], result):
                return _MATTERS
        return found

    def _others(self, case: Case, parameter: Parameter) -> Iterator[Any]:
        """Return other values to try for a parameter of a case."""
        if parameter.is_tensor:
            return iter([None])
        mine = facts(case)[parameter.name]
        groups = [group for key, group in self._groups(parameter.name).items() if key != mine]
        values = (self._cases[group[0]].values[parameter.name] for group in groups)
        return itertools.islice(values, _ALTERNATIVES)

    def _reference(self, values: Mapping[str, Any]) -> list[Tensor] | None:
        try:
            with threads(1), torch.no_grad():
                return run_reference(self._trial.operator, values)[1]
        except Exception:
            return None


def _differ(one: Sequence[Tensor], other: Sequence[Tensor]) -> bool:
    if [(t.shape, t.dtype) for t in one] != [(t.shape, t.dtype) for t in other]:
        return True
    pairs = zip(one, other, strict=True)
    return any(relative_difference(a, b) > _VISIBLE for a, b in pairs)
