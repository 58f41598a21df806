"""A package that AOTInductor compiled computes the same, from Python and from C++."""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor

from opsmith.checks.case import Case
from opsmith.checks.exported import export_call, tensors_of
from opsmith.checks.protocol import Failure, check
from opsmith.checks.sampling import DYNAMIC_SIZES, Wanted
from opsmith.checks.trial import Trial, shapes_of
from opsmith.checks.truth import flatten
from opsmith.errors import OpsmithError
from opsmith.operators.kernel import NativeKernel
from opsmith.targets import LoadedModel, get_target

_TARGET = "aotinductor"
_SMALL = Wanted(sizes=(2, 3, 4, 5), max_elements=512)
_DYNAMIC = Wanted(sizes=DYNAMIC_SIZES, distinct=True, max_elements=4096)

Run = Callable[[Trial, LoadedModel, Case], list[Tensor]]


@check(_TARGET, "an AOTInductor package gives right results", order=200, time_limit=5.0)
def from_python(trial: Trial) -> None:
    """Compiled once with every open size dynamic, run with others."""
    _require(trial)
    _each(trial, _in_python, "the AOTInductor package")


@check(
    f"{_TARGET}-cpp",
    "the C++ program runs the package without Python",
    order=210,
    time_limit=5.0,
    flag="cpp",
)
def from_cpp(trial: Trial) -> None:
    """The same package; only where asked for, since building the program takes its time."""
    trial.need(trial.subject.device == "cpu", "the C++ program reads its inputs to the CPU")
    _require(trial)
    # The samples of the other check, so that its package is the one.
    trial.name = _TARGET
    _each(trial, _in_cpp, "the C++ program")


def _require(trial: Trial) -> None:
    kernel = trial.subject.implementation
    trial.need(isinstance(kernel, NativeKernel), "a package runs without Python, the kernel not")
    missing = get_target(_TARGET).available()
    trial.need(missing is None, str(missing))


def _each(trial: Trial, run: Run, what: str) -> None:
    dtypes = (trial.subject.favourite,)

    def dynamic(first: Case, second: Case) -> None:
        _compare(trial, [first, second], run, what, dynamic=True)

    def static(case: Case) -> None:
        _compare(trial, [case], run, what, dynamic=False)

    # One package is enough, as each takes a while: of the author's cases where two are alike.
    if not any(
        trial.each_pair(dynamic, dtypes=dtypes, wanted=_DYNAMIC, examples=examples)
        for examples in (0, 1)
    ):
        trial.notes.append("no two registered cases differ in sizes alone: compiled for fixed ones")
        trial.each(static, dtypes=dtypes, wanted=_SMALL, examples=1, most=1)


def _compare(trial: Trial, cases: list[Case], run: Run, what: str, *, dynamic: bool) -> None:
    truths = [trial.truth(case) for case in cases]
    with tempfile.TemporaryDirectory(prefix="opsmith-check-") as folder:
        try:
            out = Path(folder) / "artifact"
            model = export_call(trial, cases[0], _TARGET, out, dynamic=dynamic)
            for case, truth in zip(cases, truths, strict=True):
                shapes = ", ".join(f"{name} {shape}" for name, shape in shapes_of(case))
                trial.compare(run(trial, model, case), truth, f"{what}, run with {shapes}")
        except OpsmithError as error:
            raise Failure(f"{what} {trial.raised(error)}", cases[0]) from error


def _in_python(trial: Trial, model: LoadedModel, case: Case) -> list[Tensor]:
    arguments = case.make(trial.subject.device)
    return flatten(trial.signature, model(*arguments.values()), arguments)


def _in_cpp(trial: Trial, model: LoadedModel, case: Case) -> list[Tensor]:
    from opsmith.targets.aotinductor.build_runner import build_runner

    arguments = case.make()
    inputs = tensors_of(model, arguments)
    folder = model.artifact.folder
    before, results, after = (folder.parent / f"{name}.pt" for name in ("in", "out", "after"))
    torch.save([tensor.contiguous() for tensor in inputs], before)
    done = subprocess.run(
        [build_runner(), folder, before, "--output", results, "--written", after],
        env={},
        capture_output=True,
        text=True,
    )
    if done.returncode != 0:
        raise Failure(f"the C++ program ended with {done.returncode}: {done.stderr.strip()}", case)
    for tensor, written in zip(inputs, torch.load(after), strict=True):
        tensor.copy_(written)
    returned = torch.load(results)
    single = len(trial.signature.results) == 1
    return flatten(trial.signature, returned[0] if single else returned, arguments)
