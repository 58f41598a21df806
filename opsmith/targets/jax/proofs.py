"""How `opsmith check` runs operators in JAX."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from opsmith.errors import CheckError
from opsmith.operators import Operator
from opsmith.operators.arguments import DTYPES
from opsmith.operators.kernel import Kernel
from opsmith.signature import Parameter
from opsmith.targets.jax.library import obstacle
from opsmith.targets.loaded import LoadedOperators
from opsmith.targets.proof import OperatorProof, Route
from opsmith.targets.verification import relative_difference

_STEPS = 16


def _called(
    loaded: LoadedOperators, operator: Operator, arguments: Mapping[str, Any]
) -> Sequence[Tensor]:
    function: Any = loaded[operator.name]
    before = function.library.calls()
    results = loaded.runner.run(operator.name, arguments)
    # XLA leaves out calls whose results are all empty.
    if function.library.calls() == before and any(result.numel() for result in results):
        raise CheckError("did not run the kernel")
    return results


def _batched(
    loaded: LoadedOperators, operator: Operator, arguments: Mapping[str, Any]
) -> Sequence[Tensor]:
    """The same call twice, as the samples of a batch; the second sample's results."""
    import jax
    import jax.numpy as jnp

    from opsmith.targets.jax.runner import to_jax, to_torch, wide

    tensors = [parameter.name for parameter in operator.signature.tensors]
    with wide():
        given = {name: to_jax(value) for name, value in arguments.items()}
        arrays = {name: given.pop(name) for name in tensors}
        twice = jax.tree.map(lambda array: jnp.stack([array, array]), arrays)
        returned = jax.vmap(lambda every: loaded[operator.name](**every, **given))(twice)
        many = returned if isinstance(returned, tuple) else (returned,)
        return [to_torch(value[1]) for value in many]


def _differentiated(
    loaded: LoadedOperators, operator: Operator, arguments: Mapping[str, Any]
) -> Sequence[Tensor]:
    """The results, once JAX's gradients are found to be PyTorch's."""
    import jax

    from opsmith.targets.jax.runner import to_jax, to_torch, wide

    wanted = [
        p.name for p in operator.signature.tensors if p.is_tensor and _is_float(arguments[p.name])
    ]
    leaves = {name: arguments[name].detach().clone().requires_grad_() for name in wanted}
    positional, keywords = operator.split({**arguments, **leaves})
    returned = operator(*positional, **keywords)
    results = list(returned) if isinstance(returned, tuple) else [returned]
    floats = [i for i, result in enumerate(results) if _is_float(result)]
    generator = torch.Generator().manual_seed(0)
    weights = [
        torch.rand(results[i].shape, generator=generator, dtype=torch.float64).to(results[i].dtype)
        for i in floats
    ]
    expected = torch.autograd.grad(
        [results[i] for i in floats], list(leaves.values()), weights, allow_unused=True
    )
    with wide():
        given = {name: to_jax(value) for name, value in arguments.items()}

        def call(arrays: dict[str, Any]) -> list[Any]:
            value = loaded[operator.name](**{**given, **arrays})
            many = value if isinstance(value, tuple) else (value,)
            return [many[i] for i in floats]

        _, pull = jax.vjp(call, {name: given[name] for name in wanted})
        (found,) = pull([to_jax(weight) for weight in weights])
    for name, gradient in zip(wanted, expected, strict=True):
        right = torch.zeros_like(leaves[name]) if gradient is None else gradient
        _compare(operator, name, right, to_torch(found[name]))
    return loaded.runner.run(operator.name, arguments)


def _is_float(value: Any) -> bool:
    return isinstance(value, Tensor) and (value.is_floating_point() or value.is_complex())


def _compare(operator: Operator, name: str, right: Tensor, found: Tensor) -> None:
    what = f"{operator.name}: the gradient of {name!r} in JAX"
    if found.shape != right.shape or found.dtype != right.dtype:
        raise CheckError(
            f"{what} is {found.dtype} {tuple(found.shape)}, expected {right.dtype} "
            f"{tuple(right.shape)}"
        )
    # The threads of two runtimes add up in different orders, so that what cancels is rounding.
    difference, allowed = relative_difference(right, found), _STEPS * torch.finfo(right.dtype).eps
    if not difference <= allowed:
        raise CheckError(
            f"{what} is not PyTorch's: the largest difference is {difference:.3g} of the largest "
            f"value, allowed is {allowed:.3g}"
        )


def _no_gradient(operator: Operator, kernel: Kernel) -> str | None:
    signature, rule = operator.signature, operator.rule
    problem = obstacle(operator, kernel)
    if problem is not None:
        return problem
    if signature.mutated or (rule.backward is None and not rule.reference):
        return "has no gradient"
    if not any(p.is_tensor and p.tensor_type and _may_be_float(p) for p in signature.tensors):
        return "takes no tensor that has a gradient"
    from opsmith.targets.jax.derivative import derivative

    translated = derivative(operator)
    return translated if isinstance(translated, str) else None


def _may_be_float(parameter: Parameter) -> bool:
    type_ = parameter.tensor_type
    names = type_.dtypes.names if type_ is not None else ()
    return any(DTYPES[name].is_floating_point or DTYPES[name].is_complex for name in names)


def _no_batch(operator: Operator, kernel: Kernel) -> str | None:
    if not operator.signature.tensors:
        return "takes no tensor"
    return obstacle(operator, kernel)


PROOFS: tuple[Route, ...] = (
    OperatorProof(
        name="jax",
        summary="the function for JAX gives right results",
        what="JAX",
        obstacle=obstacle,
        run=_called,
    ),
    OperatorProof(
        name="jax-vmap",
        summary="jax.vmap gives each sample the result of a call",
        what="jax.vmap",
        obstacle=_no_batch,
        run=_batched,
    ),
    OperatorProof(
        name="jax-gradient",
        summary="gradients in JAX are those of PyTorch",
        what="JAX",
        obstacle=_no_gradient,
        run=_differentiated,
    ),
)
