"""Write Python that shows a failure on a route to a target: it exports, runs and compares."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from opsmith.operators import Operator
from opsmith.targets import (
    DirectProof,
    GradientProof,
    ModelProof,
    OperatorProof,
    Route,
    Target,
)
from opsmith.targets.exporting.conformance import call_model, call_operator

#: The variable of a call's arguments, which a model is also exported with.
GIVEN = "arguments"
#: The variable of the arguments for the run, if the model's sizes may change after the export.
OTHERS = "others"


def route_snippet(target: Target, proof: Route, operator: Operator, run_with: str) -> list[str]:
    """Return lines that export ``op``, run it, and bind the results to ``given`` and ``right``.

    Args:
        target: the target to export to.
        proof: the route to the target.
        operator: the operator that ``op`` is bound to.
        run_with: the variable of the call's arguments: `GIVEN` or `OTHERS`.
    """
    match proof:
        case ModelProof():
            return _model(target, proof, operator, run_with)
        case OperatorProof():
            own = proof.run is not call_operator
            call = "route.run(loaded, op, ours)" if own else "loaded.runner.run(op.name, ours)"
            lines = _export(["op"], target, proof.options(operator))
            return [*lines, *(_route(target, proof) if own else ()), *_compared(f"list({call})")]
        case GradientProof():
            lines = _export(["op"], target, proof.options(operator))
            return [*lines, *_route(target, proof), *_GRADIENTS]
        case DirectProof():
            return [*_route(target, proof), *_compared("route.opened(op)(ours)")]
    raise AssertionError(f"{type(proof).__name__} is not a kind of route")


def _model(target: Target, proof: ModelProof, operator: Operator, run_with: str) -> list[str]:
    dynamic = run_with == OTHERS
    name = "PureCall" if proof.functional else "OneCall"
    names = f"{name}, dynamic_shapes" if dynamic else name
    what = [f"{name}(op, list(arguments)).eval()", "tuple(copy.deepcopy(arguments).values())"]
    if dynamic:
        what.append("dynamic_shapes=(tuple(dynamic_shapes(op.signature, arguments)),)")
    lines = [
        f"from opsmith.checks.exports.wrapper_modules import {names}",
        *_export(what, target, proof.options(operator)),
    ]
    call = "loaded(*ours.values())"
    if proof.run is not call_model:
        lines += _route(target, proof)
        call = "route.run(loaded, list(ours.values()))"
    # A functional model returns the tensors that it writes into, after its results.
    found = f"list({call})" if proof.functional else f"flatten(op.signature, {call}, ours)"
    return [*lines, *_compared(found, run_with)]


def _export(what: list[str], target: Target, options: Mapping[str, Any]) -> list[str]:
    """Return lines that export, and bind ``loaded`` to the loaded artifact."""
    settings = [f"{name}={value!r}" for name, value in options.items()]
    return [
        "import tempfile, opsmith",
        'out = tempfile.mkdtemp() + "/artifact"',
        "artifact = opsmith.export(",
        *(f"    {one}," for one in what),
        f"    target={target.name!r}, out=out, verify=False, say=None,",
        *(f"    {one}," for one in settings),
        ")",
        "loaded = opsmith.load(out)",
    ]


def _route(target: Target, proof: Route) -> list[str]:
    """Return lines that bind ``route`` to the proof."""
    return [
        "from opsmith.targets import get_target",
        f"routes = get_target({target.name!r}).proofs()",
        f"route = next(one for one in routes if one.name == {proof.name!r})",
    ]


def _compared(call: str, run_with: str = GIVEN) -> list[str]:
    return [
        "from opsmith.operators.core.arguments import flatten",
        f"ours, theirs = copy.deepcopy({run_with}), copy.deepcopy({run_with})",
        f"given = {call}",
        "right = flatten(op.signature, op.reference(**theirs), theirs)",
    ]


_GRADIENTS = (
    "from opsmith.checks.numerics.gradients import is_differentiable, leaves_of, stopped",
    "from opsmith.operators.core.arguments import flatten",
    "torch.manual_seed(0)",
    "own, leaves = leaves_of(copy.deepcopy(arguments), op.signature)",
    "results = flatten(op.signature, stopped(op.signature, op.reference(**own)), own)",
    "results = [one for one in results if is_differentiable(one)]",
    "incoming = [torch.randn_like(one) for one in results]",
    "pairs = [pair for pair in zip(results, incoming) if pair[0].requires_grad]",
    "outputs, grads = zip(*pairs)",
    "right = torch.autograd.grad(",
    "    outputs, list(leaves.values()), grads, allow_unused=True, materialize_grads=True",
    ")",
    "given = route.differentiate(loaded, op, own, incoming)",
)
