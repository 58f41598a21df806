"""Compare the declared gradient with the reference's."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from opsmith.checks.cases.case import Case
from opsmith.checks.cases.failure import Failure
from opsmith.checks.cases.layouts import CONTIGUOUS, lay_out
from opsmith.checks.cases.subject import is_float
from opsmith.checks.numerics.gradients import (
    Backward,
    arriving_layout,
    constant_where_expanded,
    has_gradient,
    has_leaves,
)
from opsmith.checks.numerics.oracle import Expected
from opsmith.checks.protocol import define_check
from opsmith.checks.trial.trial import Trial
from opsmith.checks.trial.trial_gradients import (
    random_cotangents,
    run_backward,
    samples_for_gradients,
    true_gradients,
)


def need_gradient(trial: Trial) -> None:
    """Require that the operator has a gradient, and attribute failures to its backward."""
    operator = trial.operator
    trial.need(has_gradient(operator), "no gradient declared")
    trial.need(_any_float(trial), "no argument is floating point")
    trial.attribution.about("backward", operator.rule.backward)
    trial.attribution.wrong, trial.attribution.raises = "OPS-GRADIENT-WRONG", "OPS-GRADIENT-RAISED"


@define_check(
    "gradient",
    "gradients agree with the reference's in double precision",
    order=50,
    runtime="autograd",
    apart=True,
)
def gradient(trial: Trial) -> None:
    """Test every dtype, with incoming gradients in the memory layouts that autograd produces."""
    need_gradient(trial)
    # An argument of a fixed dtype (Float32) is not among the generic dtypes, and may have a
    # gradient.
    dtypes = trial.subject.floats or (None,)
    opaque = compared = 0

    def one(case: Case) -> None:
        nonlocal opaque, compared
        trial.accept(case)
        # Use the incoming strides that autograd produces: the gradient of `sum` is expanded (stride
        # 0).
        layout = arriving_layout(case)
        cotangents = [
            constant_where_expanded(one, layout) for one in random_cotangents(trial, case)
        ]
        truth = true_gradients(trial, case, cotangents)
        if truth is None:
            opaque += 1
            return
        compared += 1
        given = [lay_out(cotangent, layout) for cotangent in cotangents]
        backward = run_backward(trial, case, given)
        for (name, _), grad, expected in zip(
            backward.leaves.items(), backward.found, truth.values, strict=True
        ):
            if grad is None and bool(expected.any()):
                raise Failure(
                    f"the gradient of {name!r} is None, and it is not zero",
                    code="OPS-GRADIENT-NONE",
                )
        what = f"with a gradient that came in {layout}" if layout != CONTIGUOUS else ""
        try:
            trial.compare(backward.gradients(), truth, what)
        except Failure as failure:
            if layout != CONTIGUOUS:
                # The layout is the cause only where the plain gradient is right.
                trial.compare(run_backward(trial, case, cotangents).gradients(), truth)
                failure.code = "OPS-GRADIENT-STRIDE"
            raise
        _compare_alone(trial, case, cotangents, backward, truth)

    trial.each(one, dtypes=dtypes, wanted=samples_for_gradients(trial), keep=has_leaves)
    why = "the reference is not differentiable PyTorch"
    trial.need(
        compared or not opaque,
        f"{why}, so only gradcheck can tell whether the gradient is right",
    )
    if opaque:
        trial.notes.append(f"without {opaque} cases in which {why}")


def _compare_alone(
    trial: Trial, case: Case, cotangents: Sequence[Tensor], backward: Backward, truth: Expected
) -> None:
    """Make sure that a gradient stays the same if only one argument requires a gradient."""
    names = list(backward.leaves)
    if len(names) < 2:
        return
    place = int(case.digest[4:8], 16) % len(names)
    reached = backward.found[place]
    if reached is None:
        return
    (grad,) = run_backward(trial, case, cotangents, alone=names[place]).found
    what = f"with {names[place]!r} alone requiring a gradient"
    if grad is None:
        raise Failure(f"{what}, its gradient is None", code="OPS-GRADIENT-ALONE")
    gradients = backward.gradients()
    gradients[place] = grad
    trial.compare(gradients, truth, what, code="OPS-GRADIENT-ALONE")


def _any_float(trial: Trial) -> bool:
    types = (parameter.tensor_type for parameter in trial.signature.tensors)
    return any(is_float(name) for type_ in types if type_ for name in type_.dtypes.names)
