"""Check that PyTorch's compilers keep the operator whole, with static and dynamic sizes."""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping, Sequence
from itertools import takewhile
from typing import Any

import torch

from opsmith import kernels
from opsmith.checks.cases.case import Case
from opsmith.checks.cases.failure import Failure, place_of
from opsmith.checks.cases.reference_call import run_reference
from opsmith.checks.cases.reruns.registered_cases import shown_shapes
from opsmith.checks.cases.wanted import DYNAMIC_SIZES, Wanted
from opsmith.checks.exports.wrapper_modules import OneCall, dynamic_shapes
from opsmith.checks.numerics.gradients import (
    has_gradient,
    is_differentiable,
    leaves_of,
    with_copies_to_write,
)
from opsmith.checks.numerics.oracle import RefusedError, widen
from opsmith.checks.protocol import PLAIN_CALLS, define_check
from opsmith.checks.trial.trial import Trial
from opsmith.checks.trial.trial_gradients import random_cotangents, run_backward, true_gradients
from opsmith.compat import torch_modules, torch_tracing
from opsmith.operators.core.arguments import flatten, is_float8, tensors
from opsmith.signature.dtypes import FLOAT8
from opsmith.system.text import beginning

_SMALL = Wanted(sizes=(2, 3, 1, 4, 5), max_elements=512)
_DYNAMIC = Wanted(sizes=DYNAMIC_SIZES, distinct=True, max_elements=4096)
_REGISTRATION = "test_autograd_registration"
_COMPILER = (torch_modules.COMPILER, torch_modules.INDUCTOR, "sympy.tensor.tensor")


@define_check(
    "opcheck",
    "torch.library.opcheck passes",
    order=90,
    needs=(*PLAIN_CALLS, "fake", "mutation", "aliasing"),
    time_limit=2.0,
    runtime="torch.compile",
    prepares=_COMPILER,
)
def opcheck(trial: Trial) -> None:
    """Test the schema, autograd registration, fake kernel and AOTDispatch with dynamic shapes."""
    grads = has_gradient(trial.operator)
    left_out = 0

    def one(case: Case) -> None:
        nonlocal left_out
        trial.accept(case)
        arguments = case.make(trial.subject.device)
        if grads:
            arguments, _ = leaves_of(arguments, case.signature)
            arguments = with_copies_to_write(case.signature, arguments)
        problem = _opcheck(trial, arguments)
        if problem is None:
            return
        if grads and _opcheck(trial, case.make(trial.subject.device)) is None:
            if not _has_finite_gradients(trial, case):
                left_out += 1
                return
            with trial.attribution.blaming("backward", trial.operator.rule.backward):
                raise Failure(
                    f"only where gradients are recorded: {problem}", code="OPS-OPCHECK-FAILED"
                )
        raise Failure(problem, code="OPS-OPCHECK-FAILED")

    def is_finite(case: Case) -> bool:
        nonlocal left_out
        finite = _is_finite(trial, case)
        left_out += not finite
        return finite

    dtypes = (trial.subject.favourite,)
    trial.each(one, dtypes=dtypes, wanted=_SMALL, examples=2, most=2, keep=is_finite)
    if left_out:
        trial.notes.append("not with NaN or infinity: opcheck takes NaN for different from NaN")


def _is_finite(trial: Trial, case: Case) -> bool:
    """Return whether the arguments of a case and its results are free of NaN and infinity."""
    try:
        _, results = run_reference(trial.operator, case.values)
    except Exception:
        return True  # the error is reported when the case runs
    every = [*(tensor for _, tensor in case.tensors()), *results]
    return all(bool(torch.isfinite(widen(tensor)).all()) for tensor in every)


def _has_finite_gradients(trial: Trial, case: Case) -> bool:
    truth = true_gradients(trial, case, random_cotangents(trial, case))
    return truth is None or all(bool(torch.isfinite(value).all()) for value in truth.values)


def _opcheck(trial: Trial, arguments: Mapping[str, Any]) -> str | None:
    """Return the problem that opcheck finds in a call; `None` if there is none."""
    positional, keywords = trial.operator.split(arguments)

    def problem(tests: Sequence[str]) -> Exception | None:
        try:
            torch.library.opcheck(trial.operator.overload, positional, keywords, test_utils=tests)
        except Exception as error:
            cause = error.__cause__
            return cause if isinstance(cause, Exception) else error
        return None

    tests = _opchecks(trial, arguments)
    found = problem(tests)
    if isinstance(found, NotImplementedError) and "autograd_registration_check" in str(found):
        device = trial.subject.device
        trial.notes.append(f"without {_REGISTRATION}, which PyTorch does not do on {device}")
        found = problem([test for test in tests if test != _REGISTRATION])
    return None if found is None else _tidy(trial.raised(found))


def _opchecks(trial: Trial, arguments: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the tests of opcheck that PyTorch supports for a call, and note the others."""
    given = tensors(arguments, trial.signature)
    in_float8 = "PyTorch cannot do that in float8"
    left_out = {}
    if any(is_float8(tensor.dtype) for tensor in given):
        left_out["test_schema"] = f"which compares arguments before and after: {in_float8}"
    stored = [
        set(result.tensor_type.dtypes.names) <= set(FLOAT8) for result in trial.signature.results
    ]
    if any(stored) and any(tensor.requires_grad for tensor in given):
        left_out["test_aot_dispatch_dynamic"] = f"which sums the results: {in_float8}"
    for test, reason in left_out.items():
        trial.notes.append(f"without {test}, {reason}")
    every = ("test_schema", _REGISTRATION, "test_faketensor")
    return tuple(t for t in (*every, "test_aot_dispatch_dynamic") if t not in left_out)


@define_check(
    "compile",
    "torch.compile(fullgraph=True) gives right results",
    order=100,
    needs=(*PLAIN_CALLS, "fake"),
    time_limit=3.0,
    runtime="torch.compile",
    prepares=_COMPILER,
)
def compiled(trial: Trial) -> None:
    """Compile with static and dynamic shapes, with gradients, and once with inductor."""
    trial.attribution.wrong = "OPS-COMPILE-WRONG"
    dtypes = (trial.subject.favourite,)
    backends = iter(["aot_eager", "inductor"])
    device = trial.subject.device
    if not kernels.get_device(device, trial.operator.name).compiled_by_inductor():
        backends = iter(["aot_eager"])
        trial.notes.append(f"without inductor, which makes no code for {device}")

    def static(case: Case) -> None:
        _compile(trial, [case], next(backends, "aot_eager"), dynamic=False)

    def dynamic(first: Case, second: Case) -> None:
        _compile(trial, [first, second], "aot_eager", dynamic=True)

    trial.each(static, dtypes=dtypes, wanted=_SMALL, examples=2, most=2)
    if not trial.cases.each_pair(dynamic, dtypes=dtypes, wanted=_DYNAMIC, examples=2):
        trial.notes.append("no two registered cases differ in sizes alone: not tried dynamic")


def _compile(trial: Trial, cases: list[Case], backend: str, *, dynamic: bool) -> None:
    how = f"torch.compile(fullgraph=True, dynamic={dynamic}, backend={backend!r})"
    graphs = 0
    inner = torch_tracing.backend(backend)

    def counting(graph: Any, inputs: Any, **options: Any) -> Any:
        nonlocal graphs
        graphs += 1
        return inner(graph, inputs, **options)

    counting.__name__ = backend  # which messages name
    operator = trial.operator

    def function(*positional: Any, **keywords: Any) -> Any:
        return operator(*positional, **keywords)

    torch.compiler.reset()
    try:
        run = torch.compile(function, fullgraph=True, dynamic=dynamic, backend=counting)

        def call(arguments: Mapping[str, Any]) -> Any:
            positional, keywords = operator.split(arguments)
            return run(*positional, **keywords)

        # Keep two sizes that are equal by chance from becoming one symbol.
        with torch_tracing.sizes_apart():
            # The gradient of a reference is a long graph: inductor, and symbolic sizes, need
            # minutes for it.
            long = operator.rule.backward is None
            backward = backend != "inductor" and not (dynamic and long)
            _compare_calls(trial, cases[0], call, how, backward)
            # One call may compile more than once, since PyTorch first tries to treat a float as a
            # variable.
            first = graphs
            for case in cases[1:]:
                _compare_calls(trial, case, call, how, backward)
        if graphs > first and trial.subject.implementation.dissolves:
            # Compiled code contains a Triton kernel, whose constants may depend on sizes.
            trial.notes.append(f"{how} compiled the kernel again for other sizes")
        elif graphs > first:
            raise Failure(
                f"{how} compiled again for other sizes: something fixes a size. First "
                f"{shown_shapes(cases[0])}, then {shown_shapes(cases[1])}",
                code="OPS-COMPILE-AGAIN",
            )
    finally:
        torch.compiler.reset()


def _compare_calls(
    trial: Trial, case: Case, call: Callable[[Mapping[str, Any]], Any], how: str, backward: bool
) -> None:
    truth = trial.truth(case)
    kernel = trial.subject.implementation
    before = kernel.calls
    try:
        if backward and _differentiable(trial, case):
            cotangents = random_cotangents(trial, case)
            before = kernel.calls
            found = run_backward(trial, case, cotangents, call)
            trial.compare(found.results, truth, how)
            gradients = true_gradients(trial, case, cotangents)
            if gradients is not None:
                with trial.attribution.blaming("backward", trial.operator.rule.backward):
                    trial.compare(found.gradients(), gradients, how)
        else:
            arguments = case.make(trial.subject.device)
            trial.compare(flatten(trial.signature, call(arguments), arguments), truth, how)
    except (Failure, RefusedError):
        raise
    except Exception as error:
        place = place_of(error)
        said = _tidy(f"{how} {trial.raised(error).removesuffix(place)}")
        raise Failure(f"{said}{place}", code="OPS-COMPILE-RAISED") from error
    counted = getattr(getattr(kernel, "source", None), "api", "") != "torch"
    counted = counted and not kernel.dissolves and not trial.subject.adopted
    # PyTorch rightly drops a call that returns no tensor (an empty list) from the graph.
    counted = counted and bool(truth.values)
    if counted and kernel.calls == before:
        raise Failure(
            f"{how} did not run the {trial.subject.kernel!r} kernel", code="OPS-COMPILE-KERNEL"
        )


def _differentiable(trial: Trial, case: Case) -> bool:
    return has_gradient(trial.operator) and any(
        is_differentiable(tensor) for _, tensor in case.tensors()
    )


@define_check(
    "export",
    "torch.export with dynamic sizes runs with other sizes",
    order=110,
    needs=(*PLAIN_CALLS, "fake"),
    time_limit=3.0,
    runtime="torch.export",
    prepares=_COMPILER[:1],
)
def export(trial: Trial) -> None:
    """Export with every open size dynamic; save, load, and run with other sizes."""
    trial.attribution.wrong = "OPS-EXPORT-WRONG"
    dtypes = (trial.subject.favourite,)

    def dynamic(first: Case, second: Case) -> None:
        _export(trial, first, second)

    def static(case: Case) -> None:
        _export(trial, case, case, dynamic=False)

    if not trial.cases.each_pair(dynamic, dtypes=dtypes, wanted=_DYNAMIC, examples=1):
        fixed = "no two registered cases differ in sizes alone: exported with fixed ones"
        trial.notes.append(fixed)
        trial.each(static, dtypes=dtypes, wanted=_SMALL, examples=1, most=1)


def _export(trial: Trial, first: Case, second: Case, *, dynamic: bool = True) -> None:
    how = "torch.export.export"
    operator, signature = trial.operator, trial.signature

    # Compute the right results first: if the reference refuses a case, it is not exported.
    runs = [(case, trial.truth(case)) for case in (first, second)]
    arguments = first.make(trial.subject.device)
    shapes = dynamic_shapes(signature, arguments)
    try:
        program = torch.export.export(
            OneCall(operator, list(arguments)),
            tuple(arguments.values()),
            dynamic_shapes=(tuple(shapes),) if dynamic else None,
            strict=False,
        )
        kept = [node for node in program.graph.nodes if node.target is operator.overload]
        if not kept and not signature.mutated and any(truth.values for _, truth in runs):
            raise Failure(
                f"{how}: the graph does not contain {operator.name}", code="OPS-EXPORT-GRAPH"
            )
        # PyTorch cannot save a program without results.
        loaded = (_saved(program) if program.graph_signature.output_specs else program).module()
        for case, truth in runs:
            own = case.make(trial.subject.device)
            actual = flatten(signature, loaded(*own.values()), own)
            trial.compare(actual, truth, f"{how}, run with {shown_shapes(case)}")
    except Failure:
        raise
    except Exception as error:
        raise Failure(
            _tidy(f"{how} with {shown_shapes(first)} {trial.raised(error)}"),
            code="OPS-EXPORT-RAISED",
        ) from error


def _saved(program: torch.export.ExportedProgram) -> torch.export.ExportedProgram:
    """Save a program, and load it again."""
    stream = io.BytesIO()
    torch.export.save(program, stream)
    stream.seek(0)
    return torch.export.load(stream)


def _tidy(text: str) -> str:
    """Return a compiler's error without its advice, cut to a readable length."""
    advice = ("Set TORCHDYNAMO_VERBOSE", "You can suppress", "from user code")
    return beginning(takewhile(lambda line: not line.startswith(advice), text.splitlines()))
