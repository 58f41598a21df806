"""Compare a compiled call of one rank with the same call in eager mode."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from opsmith.checks.cases.case import Case
from opsmith.checks.cases.failure import Failure
from opsmith.checks.numerics.gradients import gradients_by, is_differentiable, leaves_of
from opsmith.checks.ranks import calls as ranks
from opsmith.compat import torch_tracing
from opsmith.compat.communication import kind_of
from opsmith.kernels import HOST
from opsmith.operators import Operator
from opsmith.operators.core.arguments import flatten, map_named_tensors

if TYPE_CHECKING:
    from torch.distributed.tensor import DeviceMesh

    from opsmith.operators.dispatch.ranks.sharding_rules import ConcreteRule


@dataclass
class _RankParts:
    """A rank's placements and parts of results and gradients, by their names.

    Attributes:
        parts: the rank's own parts.
        recorded: whether every floating-point result has a gradient.
    """

    placements: dict[str, Any]
    parts: dict[str, Tensor]
    recorded: bool


def compare_compiled(
    operator: Operator, case: Case, rule: ConcreteRule, count: int, cotangents: list[Tensor]
) -> None:
    """Compile a call with the placements of a rule on the last of some ranks.

    Args:
        rule: the rule, along a mesh of one dimension.
        cotangents: the gradients of the results that have one; empty to compute no gradient.
    """
    graphs: list[Any] = []

    def function(*positional: Any, **keywords: Any) -> Any:
        return operator(*positional, **keywords)

    torch.compiler.reset()
    try:
        with ranks.last_of(count) as mesh:
            expected = _call(operator, operator, case, rule, mesh, cotangents)
            if cotangents and not expected.recorded:
                # PyTorch expects a gradient as a DTensor for such a result, and gets none.
                cotangents = []
                expected = _call(operator, operator, case, rule, mesh, cotangents)
            backend = torch_tracing.noting_backend(graphs)
            compiled = torch.compile(function, fullgraph=True, dynamic=False, backend=backend)
            found = _call(operator, compiled, case, rule, mesh, cotangents)
    finally:
        torch.compiler.reset()
    kinds = [kind_of(node.target) for graph in graphs for node in graph.graph.nodes]
    moves = [kind for kind in kinds if kind]
    if moves:
        raise Failure(
            f"the graph has {len(moves)} collectives ({', '.join(dict.fromkeys(moves))}), and the "
            "rule says that ranks need nothing of each other",
            code="OPS-SHARDING-MOVES",
        )
    for name, placements in expected.placements.items():
        if found.placements[name] != placements:
            raise Failure(
                f"{name} has the placements {found.placements[name]}, and without torch.compile "
                f"{placements}",
                code="OPS-SHARDING-WRONG",
            )
        try:
            torch.testing.assert_close(found.parts[name], expected.parts[name], equal_nan=True)
        except AssertionError as error:
            first = str(error).splitlines()[0]
            raise Failure(
                f"{name} differs from that without torch.compile: {first}",
                code="OPS-SHARDING-WRONG",
            ) from error


def _call(
    operator: Operator,
    call: Callable[..., Any],
    case: Case,
    rule: ConcreteRule,
    mesh: DeviceMesh,
    cotangents: list[Tensor],
) -> _RankParts:
    from torch.distributed.tensor import DTensor, Replicate

    def placed(tensor: Tensor, placement: Any) -> Any:
        part = ranks.parts_of(tensor, (mesh.size(),), [placement])[mesh.size() - 1]
        stride = tensor.contiguous().stride()
        return DTensor.from_local(
            part, mesh, [placement], run_check=False, shape=tensor.shape, stride=stride
        )

    arguments = map_named_tensors(
        case.make(HOST), lambda name, one: placed(one, rule.arguments[name.partition("[")[0]])
    )
    leaves: dict[str, Tensor] = {}
    if cotangents:
        arguments, leaves = leaves_of(arguments, case.signature)
    positional, keywords = operator.split(arguments)
    with torch.set_grad_enabled(bool(cotangents)):
        results = flatten(case.signature, call(*positional, **keywords), arguments)
    named: dict[str, Any] = {f"result {place}": one for place, one in enumerate(results)}
    if leaves:
        pairs = []
        differentiable = [result for result in results if is_differentiable(result)]
        for result, cotangent in zip(differentiable, cotangents, strict=True):
            if result.requires_grad:
                now: Any = result.placements[0]  # type: ignore[attr-defined]
                pairs.append((result, placed(cotangent, now if now.is_shard() else Replicate())))
        several = zip(leaves, gradients_by(pairs, leaves.values()), strict=True)
        named |= {f"the gradient of {name!r}": grad for name, grad in several if grad is not None}
    return _RankParts(
        {name: tensor.placements for name, tensor in named.items()},
        {name: tensor.detach().to_local().clone() for name, tensor in named.items()},
        all(
            one.requires_grad and is_differentiable(one)
            for one in results
            if one.is_floating_point()
        ),
    )
