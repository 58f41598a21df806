"""Write a failing case as Python that can be pasted into a fresh interpreter."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from opsmith.checks.cases.case import Case
from opsmith.checks.cases.failure import Failure
from opsmith.checks.cases.reruns.rerun_command import beside, file_of
from opsmith.checks.cases.settings import Settings
from opsmith.checks.cases.subject import Subject
from opsmith.checks.numerics.gradients import arriving_layout, leaves_of
from opsmith.checks.trial.trial import Trial
from opsmith.kernels import HOST
from opsmith.operators import Operator
from opsmith.operators.core.arguments import dtype_name, is_float8
from opsmith.sources.importing import module_name
from opsmith.targets import DirectProof, GradientProof, ModelProof, OperatorProof, Route, Target
from opsmith.targets.exporting.conformance import call_model, call_operator

#: Checks whose failures can be shown with one call.
_DERIVATIVES = ("gradient", "gradcheck", "double-backward")
_ONE_CALL = ("reference", "layouts", "empty-sizes")
#: Tensors with at most this many elements of memory are written out.
_SHORT = 16


def snippet(trial: Trial, failure: Failure, keep: Callable[[Case], Path]) -> str:
    """Return Python that shows a failure with the arguments of one call.

    If one call, one gradient or one export shows the failure, the code does the same with the
    reference, and compares. Otherwise (a compiler, guarded memory, several calls) it runs the check
    again.

    Args:
        failure: the failure with its arguments; small ones are written out.
        keep: stores arguments that are not small, and returns their path.

    Returns:
        The text; empty for an operator that is in no file, and if no case shows the failure.
    """
    lines, case, check = _beginning(trial.subject), failure.case, trial.name
    if not lines or case is None:
        return ""
    itself = trial.route is None and check in (*_ONE_CALL, *_DERIVATIVES)
    lines += [*_arguments(GIVEN, case, keep, trial.subject.device if itself else HOST), ""]
    if trial.route is not None:
        run_with = GIVEN
        if failure.run_with is not None:
            run_with = OTHERS
            lines += [*_arguments(OTHERS, failure.run_with, keep), ""]
        lines += [*_route_snippet(*trial.route, trial.operator, run_with), *_show()]
    elif check in ("gradient", "gradcheck"):
        lines += _gradients(case)
    elif check == "double-backward":
        lines += _second_derivatives(case)
    elif check in _ONE_CALL:
        variant = trial.subject.kernel in trial.operator.variants
        lines += _values(case, f"op.variant({trial.subject.kernel!r})" if variant else "op")
    else:
        names = GIVEN
        if failure.beside is not None:
            names = f"{GIVEN}, {OTHERS}"
            lines += [*_arguments(OTHERS, failure.beside, keep), ""]
        lines += _again(check, [f"cases=[{names}]"], trial.settings)
    return "\n".join(lines)


def repeated(subject: Subject, check: str, settings: Settings) -> str:
    """Return Python that runs a whole check, for a failure that depends on earlier calls."""
    lines = _beginning(subject)
    if lines:
        words = [f"seed={settings.seed}", f"examples={settings.examples}"]
        lines += _again(check, words, settings)
    return "\n".join(lines)


def _beginning(subject: Subject) -> list[str]:
    """Return the lines that import the operator; empty for an operator that is in no file."""
    file = file_of(subject)
    if file is None:
        return []
    lines = ["import copy, sys", "from math import inf, nan", "import torch"]
    folder, module = module_name(file)
    others = [module_name(other) for other in beside(subject)]
    folders = dict.fromkeys([folder, *(other for other, _ in others)])
    lines += [f"sys.path.insert(0, {str(one)!r})" for one in folders]
    lines += _import(subject.operator, module)
    return [*lines, *(f"import {other}" for _, other in others), ""]


def _import(operator: Operator, module: str) -> list[str]:
    """Return lines that bind ``op`` to the operator."""
    own = vars(sys.modules.get(operator.reference.__module__, object))
    name = next((name for name, value in own.items() if value is operator), None)
    if name is not None and name.isidentifier():
        return [f"from {module} import {name} as op"]
    return [
        f"import {module}",
        "from opsmith.operators.core import registry",
        f"op = registry.get({operator.name!r})",
    ]


def _arguments(
    name: str, case: Case, keep: Callable[[Case], Path], device: str = HOST
) -> list[str]:
    """Return lines that bind `name` to the arguments of a case, on a device."""
    lines = _arguments_on_host(name, case, keep)
    if device == HOST:
        return lines
    if len(lines) == 1:  # one line that loads the arguments
        return [lines[0].replace(")[", f", map_location={device!r})[")]
    return [f"with torch.device({device!r}):", *(f"    {line}" for line in lines)]


def _arguments_on_host(name: str, case: Case, keep: Callable[[Case], Path]) -> list[str]:
    made = case.make()
    tensors = [tensor for _, tensor in Case(case.signature, made).tensors()]
    if case.same or not all(map(_is_short, tensors)):
        return [f'{name} = torch.load({str(keep(case))!r})["arguments"]']
    inner = [f"    {key!r}: {_literal(value)}," for key, value in made.items()]
    return [f"{name} = {{", *inner, "}"]


def _is_short(tensor: Tensor) -> bool:
    size = tensor.untyped_storage().nbytes() // tensor.element_size()
    return size <= _SHORT and not is_float8(tensor.dtype)


def _literal(value: Any) -> str:
    if isinstance(value, Tensor):
        return _tensor(value)
    if isinstance(value, list | tuple):
        inner = ", ".join(map(_literal, value))
        if isinstance(value, tuple):
            return f"({inner},)" if len(value) == 1 else f"({inner})"
        return f"[{inner}]"
    if isinstance(value, complex):
        return f"complex({value.real!r}, {value.imag!r})"
    return repr(value)


def _tensor(tensor: Tensor) -> str:
    dtype = f"dtype=torch.{dtype_name(tensor.dtype)}"
    if tensor.is_contiguous() and not tensor.storage_offset():
        if tensor.numel():
            return f"torch.tensor({_literal(tensor.tolist())}, {dtype})"
        return f"torch.empty({tuple(tensor.shape)}, {dtype})"
    size = tensor.untyped_storage().nbytes() // tensor.element_size()
    memory = torch.empty(0, dtype=tensor.dtype).set_(tensor.untyped_storage(), 0, (size,), (1,))
    where = f"{tuple(tensor.shape)}, {tuple(tensor.stride())}, {tensor.storage_offset()}"
    return f"torch.tensor({_literal(memory.tolist())}, {dtype}).as_strided({where})"


def _values(case: Case, call: str) -> list[str]:
    written = [parameter.name for parameter in case.signature.mutated]
    lines = [
        "ours, theirs = copy.deepcopy(arguments), copy.deepcopy(arguments)",
        f"given, right = {call}(**ours), op.reference(**theirs)",
    ]
    if written:
        lines += [
            f"given = given, [ours[name] for name in {written!r}]",
            f"right = right, [theirs[name] for name in {written!r}]",
        ]
    return [*lines, *_show()]


def _again(check: str, words: list[str], settings: Settings) -> list[str]:
    """Return the lines that run the check itself."""
    words = [f"select=[{check!r}]", *words]
    if settings.time_limit != Settings().time_limit:
        words.append(f"time_limit={settings.time_limit:g}")
    if settings.warp != Settings().warp:
        words.append(f"warp={settings.warp}")
    if settings.devices:
        words.append(f"devices={list(settings.devices)!r}")
    return [
        "from opsmith import checks",
        "",
        f"report = checks.run(op, {', '.join(words)})",
        "print(report.explain())",
        "assert report.ok",
    ]


def _gradients(case: Case) -> list[str]:
    _, leaves = leaves_of(case.values, case.signature)
    paths = ", ".join(map(_path, leaves))
    layout = arriving_layout(case)
    return [
        "from opsmith.checks.numerics.gradients import constant_where_expanded",
        "from opsmith.checks.cases.layouts import lay_out",
        "",
        "def arriving(one):",
        f"    layout, values = {layout!r}, torch.randn(one.shape).to(one)",
        "    return lay_out(constant_where_expanded(values, layout), layout)",
        "",
        "def gradients(function):",
        "    own = copy.deepcopy(arguments)",
        f"    leaves = [leaf.requires_grad_() for leaf in [{paths}]]",
        *_recorded(case),
        "    torch.manual_seed(0)",
        "    incoming = [arriving(one) for one in results]",
        "    return torch.autograd.grad(results, leaves, incoming, allow_unused=True)",
        "",
        "given, right = gradients(op), gradients(op.reference)",
        *_show(),
    ]


def _recorded(case: Case) -> list[str]:
    """Return the lines that call a function, and take the results that require a gradient."""
    required = "    results = [one for one in results if one.requires_grad]"
    if not case.signature.mutated:
        return [
            "    results = function(**own)",
            "    results = results if isinstance(results, (list, tuple)) else [results]",
            required,
        ]
    return [
        "    from opsmith.checks.numerics.gradients import with_copies_to_write",
        "    from opsmith.operators.core.arguments import flatten",
        "",
        "    own = with_copies_to_write(op.signature, own)  # no leaf can be written into",
        "    results = flatten(op.signature, function(**own), own)",
        required,
    ]


def _second_derivatives(case: Case) -> list[str]:
    _, leaves = leaves_of(case.values, case.signature)
    paths = ", ".join(map(_path, leaves))
    return [
        "def second_derivatives(function):",
        "    own = copy.deepcopy(arguments)",
        f"    leaves = [leaf.requires_grad_() for leaf in [{paths}]]",
        *_recorded(case),
        "    torch.manual_seed(0)",
        "    incoming = [torch.randn_like(one, requires_grad=True) for one in results]",
        "    found = torch.autograd.grad(",
        "        results, leaves, incoming, create_graph=True, allow_unused=True",
        "    )",
        "    found = [one for one in found if one is not None and one.requires_grad]",
        "    torch.autograd.backward(found, [torch.randn_like(one) for one in found])",
        "    return [torch.zeros_like(one) if one.grad is None else one.grad for one in leaves]",
        "",
        "given, right = second_derivatives(op), second_derivatives(op.reference)",
        *_show(),
    ]


def _path(name: str) -> str:
    """Return the expression of a tensor called ``xs[0]``: ``own["xs"][0]``."""
    parameter, bracket, index = name.partition("[")
    return f'own["{parameter}"]{bracket}{index}'


def _show() -> list[str]:
    return [
        'print("given", given)',
        'print("right", right)',
        "torch.testing.assert_close(given, right, equal_nan=True)",
    ]


#: The variable of a call's arguments. A model is exported with the same ones.
GIVEN = "arguments"
#: The variable of the arguments for the run, if the model's sizes may change after the export.
OTHERS = "others"


def _route_snippet(target: Target, proof: Route, operator: Operator, run_with: str) -> list[str]:
    """Return lines that export ``op``, run it, and bind the results to ``given`` and ``right``."""
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
    "results = flatten(op.signature, stopped(op.signature, op.reference(**own), own), own)",
    "results = [one for one in results if is_differentiable(one)]",
    "incoming = [torch.randn_like(one) for one in results]",
    "pairs = [pair for pair in zip(results, incoming) if pair[0].requires_grad]",
    "outputs, grads = zip(*pairs)",
    "right = torch.autograd.grad(",
    "    outputs, list(leaves.values()), grads, allow_unused=True, materialize_grads=True",
    ")",
    "given = route.differentiate(loaded, op, own, incoming)",
)
