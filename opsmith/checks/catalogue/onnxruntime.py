"""ONNX Runtime computes the same: the operator's library, and models by both exporters."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from opsmith import targets
from opsmith.checks.case import Case
from opsmith.checks.catalogue.tracing import _dynamic_shape
from opsmith.checks.comparison import Comparison
from opsmith.checks.protocol import Failure, Inapplicable, check
from opsmith.checks.sampling import DYNAMIC_SIZES, Wanted
from opsmith.checks.trial import Trial, shapes_of
from opsmith.checks.truth import Truth
from opsmith.errors import ExportError, OpsmithError
from opsmith.operators import Operator
from opsmith.operators.kernel import NativeKernel
from opsmith.signature.dtypes import COMPLEX

_TARGET = "onnxruntime"
_SMALL = Wanted(sizes=(2, 3, 4, 5), max_elements=512)
_DYNAMIC = Wanted(sizes=DYNAMIC_SIZES, distinct=True, max_elements=4096)


@check(_TARGET, "the library for ONNX Runtime gives right results", order=150, time_limit=3.0)
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
    trial.each(one, dtypes=dtypes, examples=trial.some(3), keep=_writes_are_there(trial))


def _exported(form: str, exporter: str, order: int) -> None:
    suffix = "" if exporter == "dynamo" else f"-{exporter}"
    by = "torch.onnx" if exporter == "dynamo" else "its TorchScript exporter"
    what = "with the library" if form == "library" else "with the reference inlined"

    @check(
        f"onnx-{form}{suffix}",
        f"a model exported by {by} {what} runs in ONNX Runtime",
        order=order,
        time_limit=3.0,
    )
    def run(trial: Trial) -> None:
        _require(trial, library=form == "library")
        _each(trial, form, exporter)


_exported("library", "dynamo", 151)
_exported("library", "torchscript", 152)
_exported("inline", "dynamo", 153)
_exported("inline", "torchscript", 154)


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


class _Pure(nn.Module):
    """A model that calls an operator once, and writes into none of its inputs."""

    def __init__(self, operator: Operator, names: list[str]) -> None:
        super().__init__()
        self._operator = operator
        self._names = names

    def forward(self, *values: Any) -> Any:
        arguments = dict(zip(self._names, values, strict=True))
        written = [parameter.name for parameter in self._operator.signature.mutated]
        for name in written:
            arguments[name] = arguments[name].clone()
        positional, keywords = self._operator.split(arguments)
        returned = self._operator(*positional, **keywords)
        results = returned if isinstance(returned, tuple | list) else (returned,)
        return (*(r for r in results if r is not None), *(arguments[name] for name in written))


def _each(trial: Trial, form: str, exporter: str) -> None:
    dtypes = (trial.subject.favourite,)
    trial.need(dtypes[0] not in COMPLEX, "ONNX Runtime computes with no complex numbers")

    def dynamic(first: Case, second: Case) -> None:
        _compare(trial, [first, second], form, exporter, dynamic=True)

    def static(case: Case) -> None:
        _compare(trial, [case], form, exporter, dynamic=False)

    if not trial.each_pair(dynamic, dtypes=dtypes, wanted=_DYNAMIC, examples=1):
        trial.notes.append("no two registered cases differ in sizes alone: exported fixed ones")
        keep = _writes_are_there(trial)
        trial.each(static, dtypes=dtypes, wanted=_SMALL, examples=1, most=1, keep=keep)


def _compare(trial: Trial, cases: list[Case], form: str, exporter: str, *, dynamic: bool) -> None:
    truths = [trial.truth(case) for case in cases]
    arguments = cases[0].make()
    shapes = tuple(_dynamic_shape(trial, name, value) for name, value in arguments.items())
    with tempfile.TemporaryDirectory(prefix="opsmith-check-") as folder:
        try:
            artifact = targets.export(
                _Pure(trial.operator, list(arguments)).eval(),
                tuple(arguments.values()),
                target=_TARGET,
                out=Path(folder) / "artifact",
                dynamic_shapes=(shapes,) if dynamic else None,
                verify=False,
                say=None,
                form={trial.operator.name: form},
                exporter=exporter,
            )
        except ExportError as error:
            if form == "inline":
                # What ONNX has no operators for is no fault of the reference.
                raise Inapplicable(str(error).splitlines()[0]) from error
            raise Failure(f"the export {trial.raised(error)}", cases[0]) from error
        try:
            model = targets.load(artifact.folder)
            for case, truth in zip(cases, truths, strict=True):
                sizes = ", ".join(f"{name} {shape}" for name, shape in shapes_of(case))
                found = model(*case.make().values())
                tensors = [item for item in found if isinstance(item, Tensor)]
                what = f"the exported model, run with {sizes}"
                if form == "library":
                    trial.compare(tensors, truth, what)
                else:
                    trial.record(_compare_loosely(tensors, truth), what)
        except OpsmithError as error:
            raise Failure(f"the exported model {trial.raised(error)}", cases[0]) from error


#: Of the largest value: ONNX Runtime has its own exp, tanh and sums, and a reference may cancel.
_LOOSE = {torch.float16: 2e-2, torch.bfloat16: 1e-1, torch.float32: 1e-4, torch.float64: 1e-6}
#: Of the elements of an integer result, which rounding before the last step may change.
_UNLIKE = 0.02


def _compare_loosely(found: list[Tensor], truth: Truth) -> Comparison:
    """Compare what another runtime's arithmetic gave with the truth."""
    if len(found) != len(truth.values):
        return Comparison(float("inf"), f"gave {len(found)} tensors, expected {len(truth.values)}")
    worst = 0.0
    for name, value, expected in zip(truth.names, found, truth.values, strict=True):
        if value.shape != expected.shape:
            shapes = f"{tuple(value.shape)}, expected {tuple(expected.shape)}"
            return Comparison(float("inf"), f"{name} has shape {shapes}")
        if value.dtype in _LOOSE:
            units = targets.relative_difference(expected, value) / _LOOSE[value.dtype]
            words = "of the largest value apart"
            allowed = _LOOSE[value.dtype]
        else:
            unlike = (value != expected).double().mean().item() if value.numel() else 0.0
            units, words, allowed = unlike / _UNLIKE, "of the elements are others", _UNLIKE
        if not units <= 1:
            problem = f"{name}: {units * allowed:.3g} {words}, allowed is {allowed:g}"
            return Comparison(units, problem)
        worst = max(worst, units)
    return Comparison(worst)
