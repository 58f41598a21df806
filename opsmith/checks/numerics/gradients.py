"""Gradients of an operator and of its reference, for the checks that compare them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from opsmith.checks.cases.case import Case
from opsmith.checks.cases.failure import Failure
from opsmith.checks.cases.layouts import EXPANDED, LAYOUTS, make_constant
from opsmith.checks.cases.reference_call import after_evaluation, run_reference
from opsmith.checks.numerics.double_run import DoubleRun
from opsmith.checks.numerics.oracle import Expected, Formula, measure, narrow, widen
from opsmith.checks.numerics.perturbation import keep_indices
from opsmith.checks.numerics.rounding import RandomRounding
from opsmith.checks.numerics.sensitivity import Evaluate
from opsmith.checks.numerics.torch_threads import threads
from opsmith.operators import Operator
from opsmith.operators.core.arguments import flatten, is_float8, map_named_tensors, map_tensors
from opsmith.operators.defined import DefinedOperator
from opsmith.signature import Signature, TensorListType
from opsmith.signature.dtypes import FLOAT8

#: Name of the incoming gradients among the arguments.
COTANGENTS = "the incoming gradients"
#: What PyTorch says where a reference leaves it for NumPy, and a gradient would be lost.
_LEAVES_PYTORCH = "numpy() on Tensor that requires grad"
#: Largest error of a right backward in double precision, in units of its error in the own dtype.
_AGREEING = 1e-3


def has_gradient(operator: Operator) -> bool:
    """Return whether the operator declares a gradient."""
    return operator.rule.backward is not None or operator.rule.reference


def leaves_of(
    arguments: Mapping[str, Any], signature: Signature, alone: str = ""
) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Make the floating-point tensors in `arguments` require a gradient, and return them by name.

    Leave out tensors that no gradient reaches according to the declaration, and tensors whose
    declared dtype cannot carry a gradient (their dtype here may be double precision). If `alone`
    names a tensor, only this tensor requires a gradient.
    """
    leaves: dict[str, Tensor] = {}

    def is_stored(name: str) -> bool:
        type_ = signature.by_name[name].tensor_type
        return type_ is not None and set(type_.dtypes.names) <= set(FLOAT8)

    unreached = {name for name in arguments if is_stored(name)} | set(signature.nondifferentiable)

    def leaf(name: str, value: Tensor) -> Tensor:
        if name.partition("[")[0] in unreached or not is_differentiable(value):
            return value
        leaves[name] = value.detach().requires_grad_()
        return leaves[name]

    own = map_named_tensors(arguments, leaf)
    if alone:
        for name in set(leaves) - {alone}:
            leaves.pop(name).requires_grad_(False)
    return own, leaves


def with_copies_to_write(signature: Signature, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments, copied where the operator writes: a leaf cannot be written into."""
    own = dict(arguments)
    for parameter in signature.mutated:
        own[parameter.name] = map_tensors(own[parameter.name], Tensor.clone)
    return own


def has_leaves(case: Case) -> bool:
    """Return whether an element of a case can have a gradient."""
    _, leaves = leaves_of(case.values, case.signature)
    return any(leaf.numel() for leaf in leaves.values())


def is_differentiable(tensor: Tensor) -> bool:
    """Return whether a tensor's dtype can carry a gradient."""
    inexact = tensor.is_floating_point() or tensor.is_complex()
    return inexact and not is_float8(tensor.dtype)


def stopped(signature: Signature, returned: Any, arguments: dict[str, Any]) -> Any:
    """Detach what a call returned, and wrote into arguments, where it is `NonDifferentiable`."""
    for parameter in signature.mutated:
        if not parameter.differentiable:
            arguments[parameter.name] = map_tensors(arguments[parameter.name], Tensor.detach)
    results = signature.results
    if all(result.differentiable for result in results):
        return returned
    many = returned if len(results) > 1 else [returned]
    found = tuple(
        value if result.differentiable else map_tensors(value, Tensor.detach)
        for result, value in zip(results, many, strict=True)
    )
    return found if len(results) > 1 else found[0]


def arriving_layout(case: Case) -> str:
    """Choose a layout for the incoming gradients of a case; equal cases get the same layout."""
    return LAYOUTS[int(case.digest[:4], 16) % len(LAYOUTS)]


def constant_where_expanded(cotangent: Tensor, layout: str) -> Tensor:
    """Return an incoming gradient with equal values along the dimension that `layout` expands."""
    expands = layout == EXPANDED and cotangent.dim() and cotangent.numel()
    return make_constant(cotangent, 0) if expands else cotangent


@dataclass
class Backward:
    """The outcome of one forward and backward call.

    Attributes:
        leaves: the tensors that require a gradient, by name.
        found: the gradient of each leaf; `None` where autograd gave none.
    """

    results: list[Tensor]
    leaves: dict[str, Tensor]
    found: list[Tensor | None]

    def gradients(self) -> list[Tensor]:
        """Return the gradients, zero where autograd gave none."""
        return zero_where_none(self.leaves.values(), self.found)


def require_unwritten(changed: Sequence[str]) -> None:
    """Require that a forward and backward call changed none of their inputs.

    Args:
        changed: names of the tensors that changed.
    """
    if not changed:
        return
    name = changed[0]
    incoming = name.startswith(COTANGENTS)
    raise Failure(
        "the backward wrote into the gradient that it was given"
        if incoming
        else f"argument {name!r} changed between the call and the end of its backward",
        code="OPS-GRADIENT-MUTATION",
    )


def differentiate(
    call: Callable[[Mapping[str, Any]], Any],
    signature: Signature,
    arguments: Mapping[str, Any],
    cotangents: Sequence[Tensor],
    *,
    alone: str = "",
    count: int,
) -> Backward:
    """Call an operator in this process, and differentiate its results.

    Args:
        call: function that calls the operator with arguments by name.
        cotangents: an incoming gradient for each floating-point result.
        alone: name of the only tensor that requires a gradient; empty for all.
        count: number of threads for the backward.
    """
    arguments, leaves = leaves_of(arguments, signature, alone)
    own = with_copies_to_write(signature, arguments)
    results = flatten(signature, call(own), own)
    outputs = [result for result in results if is_differentiable(result)]
    if leaves and outputs and not any(output.requires_grad for output in outputs):
        raise Failure(
            "an argument requires a gradient, and no result does: it is lost silently",
            code="OPS-GRADIENT-LOST",
        )
    pairs = [
        (output, cotangent.to(output.device))
        for output, cotangent in zip(outputs, cotangents, strict=True)
        if output.requires_grad
    ]
    with threads(count):
        return Backward(results, leaves, _dense_gradients(pairs, leaves))


def gradients_by(
    pairs: Sequence[tuple[Any, Any]], leaves: Iterable[Tensor]
) -> Sequence[Tensor | None]:
    """Return the gradient of each leaf, `None` where none arrives.

    Args:
        pairs: results, each with its incoming gradient.
        leaves: what to differentiate by.
    """
    results, incoming = [result for result, _ in pairs], [gradient for _, gradient in pairs]
    return torch.autograd.grad(results, list(leaves), incoming, allow_unused=True)


def zero_where_none(leaves: Iterable[Tensor], found: Sequence[Tensor | None]) -> list[Tensor]:
    """Return the gradient of each leaf, zero where none arrived."""
    return [
        torch.zeros_like(leaf) if grad is None else grad
        for leaf, grad in zip(leaves, found, strict=True)
    ]


def _dense_gradients(
    pairs: Sequence[tuple[Tensor, Tensor]], leaves: Mapping[str, Tensor]
) -> list[Tensor | None]:
    """Return the gradients, also where gather or embedding make them sparse."""
    found = gradients_by(pairs, leaves.values())
    return [one if one is None else one.to_dense() for one in found]


def expected_gradients(
    operator: Operator,
    values: Mapping[str, Any],
    cotangents: Sequence[Tensor] | None = None,
    function: Callable[..., Any] | None = None,
    known: Mapping[str, Any] | None = None,
) -> Expected | None:
    """Compute the gradients of the reference in double precision.

    Args:
        values: the arguments by name.
        cotangents: an incoming gradient for each floating-point result; the result itself by
            default.
        function: a function to differentiate in place of the reference.
        known: attributes that were computed before, see `expected_of`.

    Returns:
        The gradients in the order of `Backward.leaves`; `None` if the reference is not
        differentiable by PyTorch.
    """
    function = function or operator.reference
    names: list[str] = []

    def evaluate(given: Mapping[str, Any]) -> list[Tensor]:
        given = keep_indices(operator.signature, values, given)
        own = {k: v for k, v in given.items() if k != COTANGENTS}
        arguments, leaves = leaves_of(own, operator.signature)
        with torch.enable_grad():
            arguments = with_copies_to_write(operator.signature, arguments)
            positional, keywords = operator.split(arguments)
            try:
                returned = function(*positional, **keywords)
            except RuntimeError as error:
                if _LEAVES_PYTORCH in str(error):
                    raise _NotDifferentiableError from error
                raise
            returned = stopped(operator.signature, returned, arguments)
            results = flatten(operator.signature, returned, arguments)
        outputs = [result for result in results if is_differentiable(result)]
        incoming = given.get(COTANGENTS, outputs)
        pairs = [
            (result, cotangent.detach().to(result.dtype))
            for result, cotangent in zip(outputs, incoming, strict=True)
            if result.requires_grad
        ]
        if not pairs:
            raise _NotDifferentiableError
        found = _dense_gradients(pairs, leaves)
        after_evaluation.get()()
        names[:] = [f"the gradient of {name!r}" for name in leaves]
        return zero_where_none(leaves.values(), found)

    given = dict(values)
    if cotangents is not None:
        given[COTANGENTS] = list(cotangents)
    own = {name: narrow(value) for name, value in given.items()}
    if known is not None:
        truth = Expected(**known, evaluate=evaluate, arguments=own)
    else:
        wide = {name: widen(value) for name, value in given.items()}
        try:
            evaluate(wide)
        except _NotDifferentiableError:
            return None
        except Exception:
            pass  # `measure` tries the case's own dtypes, and reports the error
        truth = measure(evaluate, wide, own)
        truth.names = list(names)
    truth.derivative = True
    if function is operator.reference:
        truth.formula = _by_declared_backward(operator, values)
    # No function has a slope at NaN, and PyTorch's own operators give arbitrary gradients there.
    _, leaves = leaves_of({name: own[name] for name in values}, operator.signature)
    truth.undefined = [leaf.isnan() for leaf in leaves.values()]
    return truth


def _by_declared_backward(operator: Operator, values: Mapping[str, Any]) -> Formula | None:
    """Return the rounding errors of the declared backward's reference.

    The backward may be a formula of its own, and starts from results that were rounded: what it
    loses so is no fault of a kernel.
    """
    declared = operator.declared_backward if isinstance(operator, DefinedOperator) else None
    signature = operator.signature
    lists = any(isinstance(result.type, TensorListType) for result in signature.results)
    if declared is None or signature.mutated or lists:
        return None
    names = [parameter.name for parameter in signature.parameters]

    def evaluate(given: Mapping[str, Any]) -> list[Tensor]:
        given = keep_indices(signature, values, given)
        own = {name: given[name] for name in names}
        _, leaves = leaves_of(own, signature)
        results = run_reference(operator, own)[1]
        incoming = iter(given.get(COTANGENTS, filter(is_differentiable, results)))
        arriving = [next(incoming) if is_differentiable(one) else None for one in results]
        source = {"argument": list(own.values()), "result": results, "gradient": arriving}
        taken = {one.name: source[one.kind][one.position] for one in declared.given}
        found = run_reference(declared.backward, declared.backward.arguments((), taken))[1]
        places = [(leaf, declared.gradients[names.index(name)]) for name, leaf in leaves.items()]
        return [torch.zeros_like(leaf) if at is None else found[at] for leaf, at in places]

    return rounding_of(torch.no_grad()(evaluate), by_steps=True)


def rounding_of(evaluate: Evaluate, *, by_steps: bool = False) -> Formula:
    """Return the rounding errors of another way to compute results, see `Expected.formula`.

    An element that `evaluate` gives wrong even in double precision gets no rounding error.

    Args:
        by_steps: whether its steps are rounded at random, too. Modes that change results in place
            end the process under `torch.func.jvp`.
    """

    def errors(
        given: Mapping[str, Any], right: Sequence[Tensor], mode: RandomRounding
    ) -> tuple[list[Tensor], list[Tensor]]:
        wide = {name: widen(value) for name, value in given.items()}
        run = DoubleRun(evaluate, wide, given)
        rough, fine = evaluate(given), run(wide)
        if by_steps:
            with mode:
                stepped = run(wide)
            rough = [
                torch.where((by - exact).abs() > (one - exact).abs(), by.to(one.dtype), one)
                for one, by, exact in zip(rough, stepped, fine, strict=True)
            ]
        for one, other, true in zip(rough, fine, right, strict=True):
            wrong = (other - true).abs() > _AGREEING * (one - other).abs()
            one[wrong] = other[wrong].to(one.dtype)
        return rough, fine

    return errors


class _NotDifferentiableError(Exception):
    pass
