"""ONNX Runtime computes the same: the operator's library, and models by both exporters."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path

from opsmith import targets
from opsmith.checks.case import Case
from opsmith.checks.exported import PureCall, export_call
from opsmith.checks.protocol import Failure, Inapplicable, check
from opsmith.checks.sampling import DYNAMIC_SIZES, Wanted
from opsmith.checks.trial import Trial, shapes_of
from opsmith.checks.truth import RefusedError
from opsmith.errors import ExportError, OpsmithError
from opsmith.operators.arguments import describe
from opsmith.operators.kernel import NativeKernel
from opsmith.signature.binding import bind
from opsmith.signature.dtypes import COMPLEX

_TARGET = "onnxruntime"
_MOST = 8
_SMALL = Wanted(sizes=(2, 3, 4, 5), max_elements=512)
_DYNAMIC = Wanted(sizes=DYNAMIC_SIZES, distinct=True, max_elements=4096)


@check(_TARGET, "the library for ONNX Runtime gives right results", order=201, time_limit=3.0)
def in_the_library(trial: Trial) -> None:
    """Every dtype and case of the kernel, in a model of one node."""
    _require(trial, library=True)
    from opsmith.targets.onnxruntime import library
    from opsmith.targets.onnxruntime.single import SingleNode

    path = library.build(library.kernel_of(trial.operator))

    def one(case: Case) -> None:
        truth = trial.truth(case)
        arguments = case.make()
        before = library.calls(path, trial.signature)
        found = SingleNode(trial.operator, path, arguments)(arguments)
        trial.compare(found, truth, "in ONNX Runtime")
        if library.calls(path, trial.signature) == before:
            raise Failure("ONNX Runtime did not run the kernel")

    dtypes = tuple(name for name in trial.subject.dtypes if name not in COMPLEX)
    trial.need(dtypes, "ONNX Runtime computes with no complex numbers")
    keep = _writes_are_there(trial)
    trial.each(one, dtypes=dtypes, examples=trial.some(3), most=_MOST, keep=keep)


_WAYS = {
    "standard": "as register_onnx says",
    "library": "with the library",
    "inline": "with the reference inlined",
}


def _exported(form: str, exporter: str, order: int) -> None:
    suffix = "" if exporter == "dynamo" else f"-{exporter}"
    by = "torch.onnx" if exporter == "dynamo" else "its TorchScript exporter"

    @check(
        f"onnx-{form}{suffix}",
        f"a model exported by {by} {_WAYS[form]} runs in ONNX Runtime",
        order=order,
        time_limit=3.0,
    )
    def run(trial: Trial) -> None:
        _require(trial, library=form == "library")
        if form == "standard":
            trial.need(trial.operator.onnx_translations, "register_onnx was not called")
        _each(trial, form, exporter)


for _number, _form in enumerate(_WAYS):
    _exported(_form, "dynamo", 202 + 2 * _number)
    _exported(_form, "torchscript", 203 + 2 * _number)


def _require(trial: Trial, *, library: bool) -> None:
    trial.need(trial.subject.device == "cpu", "ONNX Runtime runs on the CPU here")
    missing = targets.get_target(_TARGET).available()
    trial.need(missing is None, str(missing))
    kernel = trial.subject.implementation
    if library:
        trial.need(isinstance(kernel, NativeKernel), "the kernel is Python")
        api = kernel.source.api if isinstance(kernel, NativeKernel) else ""
        trial.need(api == "opsmith", "the kernel is written against PyTorch")


def _writes_are_there(trial: Trial) -> Callable[[Case], bool]:
    """Leaves out cases without a mutated argument, which has no place among a node's outputs."""
    names = [parameter.name for parameter in trial.signature.mutated]
    return lambda case: all(case.values[name] is not None for name in names)


def _each(trial: Trial, form: str, exporter: str) -> None:
    dtypes = (trial.subject.favourite,)
    trial.need(dtypes[0] not in COMPLEX, "ONNX Runtime computes with no complex numbers")

    def dynamic(first: Case, second: Case) -> None:
        if not first.origin and not _all_differ(first):
            # A reference that branches on whether two sizes are equal is fixed to the branch.
            raise RefusedError("two sizes are equal")
        _compare(trial, [first, second], form, exporter, dynamic=True)

    def static(case: Case) -> None:
        _compare(trial, [case], form, exporter, dynamic=False)

    # One export is enough, as each takes a while: of the author's cases where two are alike.
    if not any(
        trial.each_pair(dynamic, dtypes=dtypes, wanted=_DYNAMIC, examples=examples)
        for examples in (0, 1)
    ):
        trial.notes.append("no two registered cases differ in sizes alone: exported fixed ones")
        keep = _writes_are_there(trial)
        trial.each(static, dtypes=dtypes, wanted=_SMALL, examples=1, most=1, keep=keep)


def _opset(trial: Trial, form: str, exporter: str) -> int | None:
    """The exporter's own, unless the standard form holds from a later one only."""
    if form != "standard":
        return None
    from opsmith.targets.onnx import dynamo, torchscript

    writer = torchscript if exporter == "torchscript" else dynamo
    first = min(translation.opset for translation in trial.operator.onnx_translations)
    last = writer.OPSETS[1]
    trial.need(first <= last, f"it holds from opset {first}, and the exporter writes up to {last}")
    return max(first, writer.DEFAULT_OPSET)


def _all_differ(case: Case) -> bool:
    """Whether no two dimensions of different names have the same size."""
    bound = bind(case.signature, describe(case.values, case.signature))
    sizes = [*bound.dims.values()]
    for run in bound.variadic.values():
        sizes += run
    return len(set(sizes)) == len(sizes)


def _compare(trial: Trial, cases: list[Case], form: str, exporter: str, *, dynamic: bool) -> None:
    truths = [trial.truth(case) for case in cases]
    with tempfile.TemporaryDirectory(prefix="opsmith-check-") as folder:
        try:
            model = export_call(
                trial,
                cases[0],
                _TARGET,
                Path(folder) / "artifact",
                dynamic=dynamic,
                call=PureCall,
                form={trial.operator.name: form},
                exporter=exporter,
                opset=_opset(trial, form, exporter),
            )
        except ExportError as error:
            if form == "inline":
                # What ONNX has no operators for, or what inlining fixes, is no fault of anyone's.
                first = str(error).splitlines()[0]
                if not dynamic:
                    raise Inapplicable(first) from error
                trial.notes.append(f"exported fixed sizes: {first}")
                return _compare(trial, cases[:1], form, exporter, dynamic=False)
            raise Failure(f"the export {trial.raised(error)}", cases[0]) from error
        try:
            for case, truth in zip(cases, truths, strict=True):
                sizes = ", ".join(f"{name} {shape}" for name, shape in shapes_of(case))
                found = model(*case.make().values())
                trial.compare(found, truth, f"the exported model, run with {sizes}")
        except (OpsmithError, RuntimeError) as error:
            raise Failure(f"the exported model {trial.raised(error)}", cases[0]) from error
