"""Compare the declared gradient with finite differences of the operator itself."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor
from torch.autograd.gradcheck import GradcheckError

from opsmith.checks.cases.case import Case
from opsmith.checks.cases.failure import Failure
from opsmith.checks.cases.reference_call import run_reference
from opsmith.checks.cases.subject import is_float
from opsmith.checks.cases.wanted import Wanted
from opsmith.checks.catalogue.gradients.gradient import need_gradient
from opsmith.checks.numerics.gradients import (
    is_differentiable,
    leaves_of,
    stopped,
    with_copies_to_write,
)
from opsmith.checks.numerics.perturbation import keep_indices
from opsmith.checks.protocol import PLAIN_CALLS, define_check
from opsmith.checks.trial.trial import Trial
from opsmith.kernels import HOST
from opsmith.operators.core.arguments import flatten, map_named_tensors
from opsmith.signature.dtype_variables import parts
from opsmith.system.text import beginning

#: With more elements than this, gradcheck compares random projections instead of every element.
_SLOW_ELEMENTS = 40
_DOUBLES = ("float64", "complex128")
_DOUBLE = (torch.float64, torch.complex128)
_DIRECTIONS = 3


@dataclass(frozen=True)
class _Step:
    """The step and the tolerances of gradcheck."""

    eps: float
    atol: float
    rtol: float


#: The wide step is for operators that compute in single precision internally.
_STEPS = (_Step(1e-6, 1e-5, 1e-3), _Step(1e-3, 1e-3, 1e-2))


def _is_double(dtype: str) -> bool:
    floats = [one for one in parts(dtype) if is_float(one)]
    return set(floats) <= {*_DOUBLES}


@define_check(
    "gradcheck",
    "gradients agree with finite differences of the operator itself",
    order=51,
    needs=(*PLAIN_CALLS, "gradient"),
    runtime="autograd",
)
def gradcheck(trial: Trial) -> None:
    """Run `torch.autograd.gradcheck` and gradgradcheck in float64 where the reference is smooth."""
    need_gradient(trial)
    # An argument of a fixed dtype (Float64) is not among the generic dtypes.
    floats = trial.subject.floats
    doubles = [name for name in floats if _is_double(name)] if floats else [None]
    types = [parameter.tensor_type for parameter in trial.signature.tensors]
    fixed = any({*_DOUBLES} & {*type_.dtypes.names} for type_ in types if type_)
    trial.need(doubles and (floats or fixed), "the kernel has no float64")
    tried, bent, alike = 0, 0, 0

    def numeric(case: Case) -> None:
        nonlocal tried, bent, alike
        trial.accept(case)
        step = next((step for step in _STEPS if _is_smooth(trial, case, step)), None)
        if step is None:
            bent += 1
            return
        tried += 1
        alike += not _gradcheck(trial, case, step)

    small = Wanted(sizes=(1, 2, 3), max_elements=64)
    trial.each(numeric, dtypes=doubles[:1], wanted=small, examples=4, most=3, keep=_has_double)
    if bent:
        some = "some cases" if tried else "every case"
        trial.notes.append(f"no finite differences at {some}: a kink, a bound, NaN or infinity")
    if alike:
        trial.notes.append(
            "at some cases the reference's own derivatives, by PyTorch's autograd, are not its "
            "slopes either: it detaches, or bends (abs at 0 has no second derivative)"
        )
    trial.need(tried or bent, "no argument and result of float64")


def _double_leaves(case: Case) -> list[str]:
    """Return the tensors to differentiate; a step in single precision would be lost."""
    _, leaves = leaves_of(case.values, case.signature)
    return [name for name, leaf in leaves.items() if leaf.dtype in _DOUBLE and leaf.numel()]


def _has_double(case: Case) -> bool:
    return bool(_double_leaves(case))


def _is_smooth(trial: Trial, case: Case, step: _Step) -> bool:
    """Return whether the reference is finite, and has one slope, at every element of a case.

    Compute both one-sided slopes along a few directions that move every element. If they differ by
    more than gradcheck allows, no finite difference equals the gradient. The operator must also
    accept the arguments on both sides; beyond the bound of a declared range it does not.
    """
    names = _double_leaves(case)
    generator = torch.Generator().manual_seed(0)

    def moved(signs: Mapping[str, Tensor], by: float) -> list[Tensor]:
        def move(name: str, value: Tensor) -> Tensor:
            return value + by * signs[name] if name in signs else value

        values = keep_indices(case.signature, case.values, map_named_tensors(case.values, move))
        with torch.no_grad():
            if by:
                trial.run(replace(case, values=values).make(trial.subject.device))
            _, results = run_reference(trial.operator, values)
        return [result for result in results if is_differentiable(result)]

    tensors = dict(case.tensors())
    try:
        here = moved({}, 0.0)
        for _ in range(_DIRECTIONS):
            signs = {
                name: torch.randint(0, 2, tensors[name].shape, generator=generator) * 2.0 - 1
                for name in names
            }
            for before, at, after in zip(
                moved(signs, -step.eps), here, moved(signs, step.eps), strict=True
            ):
                bend = (after - 2 * at + before).abs() / step.eps
                slope = (after - before).abs() / (2 * step.eps)
                # Comparisons with NaN are false, so a slope that is NaN or infinite counts as not
                # smooth.
                if not bool((bend <= 2 * step.atol + step.rtol * slope).all()):
                    return False
    except Exception:
        return False  # a size depends on the data, or the moved values are outside a declared range
    return True


def _gradcheck(trial: Trial, case: Case, step: _Step) -> bool:
    """Compare derivatives with slopes; return `False` if the reference's derivatives differ too."""
    rule = trial.operator.rule
    function, inputs = _as_function(trial, case, trial.call)
    with torch.no_grad():
        outputs = function(*inputs)
    if not outputs:
        return True
    # A call that writes has no tangents.
    forward = rule.reference and not trial.signature.mutated
    for second in (False, True):
        if second and not (rule.reference and rule.backward is None and step is _STEPS[0]):
            continue
        torch.manual_seed(trial.settings.seed)  # fixes the projections of fast mode
        try:
            _compare(function, inputs, step, second, forward=forward)
        except Exception as error:
            differs = isinstance(error, GradcheckError)
            # An exception of a backward of its own is its own.
            shared = differs or rule.backward is None
            if shared and _fails_alike(trial, case, step, second, not differs, forward):
                return False
            if not differs:
                raise
            said = beginning(str(error).strip().splitlines())
            raise Failure(f"gradcheck: {said}", code="OPS-GRADIENT-NUMERIC") from error
    return True


def _compare(
    function: Callable[..., Any],
    inputs: tuple[Tensor, ...],
    step: _Step,
    second: bool,
    *,
    forward: bool = False,
) -> None:
    # Allow for rounding between two calls on a device: PyTorch's own derivatives (`index_add`) add
    # in any order there. The row `determinism` compares calls of the kernel.
    between = 0.0 if all(tensor.device.type == HOST for tensor in inputs) else step.eps / 1000
    if second:
        torch.autograd.gradgradcheck(function, inputs, fast_mode=True, nondet_tol=between)
        return
    torch.autograd.gradcheck(
        function,
        inputs,
        eps=step.eps,
        atol=step.atol,
        rtol=step.rtol,
        fast_mode=sum(tensor.numel() for tensor in inputs) > _SLOW_ELEMENTS,
        check_forward_ad=forward,
        nondet_tol=between,
    )


def _fails_alike(
    trial: Trial, case: Case, step: _Step, second: bool, raises: bool, forward: bool
) -> bool:
    """Return whether the reference's own derivatives differ from its slopes, or raise, too.

    The reference's derivatives are right by definition: the check `gradient` compares with them.
    """

    def reference(arguments: Mapping[str, Any]) -> Any:
        positional, keywords = trial.operator.split(arguments)
        return trial.operator.reference(*positional, **keywords)

    function, inputs = _as_function(trial, case, reference)
    torch.manual_seed(trial.settings.seed)
    try:
        if any(result.requires_grad for result in function(*inputs)):
            _compare(function, inputs, step, second, forward=forward)
    except GradcheckError:
        return True
    except Exception:
        return raises  # if the reference alone has no derivatives, the operator's differ
    return False


def _as_function(
    trial: Trial, case: Case, call: Callable[[Mapping[str, Any]], Any]
) -> tuple[Callable[..., Any], tuple[Tensor, ...]]:
    """Wrap `call`, which receives arguments by name, as a function of the floating ones alone."""
    arguments, every = leaves_of(case.make(trial.subject.device), case.signature)
    leaves = {name: every[name] for name in _double_leaves(case)}
    for name in set(every) - set(leaves):
        every[name].requires_grad_(False)

    def function(*inputs: Tensor) -> tuple[Tensor, ...]:
        given = dict(zip(leaves, inputs, strict=True))
        own = map_named_tensors(arguments, given.get)
        own = keep_indices(trial.signature, case.values, own)
        own = with_copies_to_write(trial.signature, own)
        returned = stopped(trial.signature, call(own), own)
        results = flatten(trial.signature, returned, own)
        return tuple(result for result in results if result.dtype in _DOUBLE)

    return function, tuple(leaves.values())
