"""Check how a compiled kernel uses memory and threads, in opsmith's own harness.

The harness calls the kernel without PyTorch and Python: see `opsmith.checks.harness`.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from opsmith.checks import harness
from opsmith.checks.cases import cohorts
from opsmith.checks.cases.case import Case
from opsmith.checks.cases.failure import Failure
from opsmith.checks.cases.subject import Subject, subjects_of
from opsmith.checks.cases.wanted import Wanted
from opsmith.checks.harness import Called, Fault, Phase
from opsmith.checks.numerics.comparison import same_bits
from opsmith.checks.numerics.oracle import Expected
from opsmith.checks.protocol import define_check
from opsmith.checks.trial.size_rules import tell_sizes
from opsmith.checks.trial.trial import Trial
from opsmith.kernels import KernelSource
from opsmith.kernels.toolchain.devices import host_reads
from opsmith.operators import Operator
from opsmith.operators.core.arguments import map_tensors

_FILLS = (0xFF, 0x7F)
_WHOLE = Phase()
#: Sizes and number of further samples, if no case was large enough to be cut.
_SPLIT_SIZES, _SPLIT_SAMPLES = (2, 3, 4, 5, 8, 17), 6
_MEET = (
    "One thread alone gives the right results: two pieces of the work write to one place, or one "
    "reads what another writes. --check sanitize-thread names the lines."
)
_SPLITS = (Phase(seed=1), Phase(seed=2, at_end=False), Phase(seed=3, threads=3))


def compiled(operator: Operator) -> list[Subject]:
    """Return the kernels that export a C symbol that the host can call."""
    return [
        subject
        for subject in subjects_of(operator)
        if subject.implementation.entry is not None and host_reads(subject.device)
    ]


def call(
    trial: Trial,
    build: harness.Build,
    cases: Sequence[Case],
    phases: Sequence[Phase],
    seconds: float = 60.0,
) -> list[list[Called]]:
    """Call the kernel as an adapter would: with contiguous tensors unless it requested strides."""
    source = trial.subject.implementation.source
    assert source is not None
    made = [as_taken(source, case.make()) for case in cases]
    try:
        calls = harness.run(build, trial.signature, made, phases, seconds)
    except Fault as fault:
        raise Failure(str(fault), code=fault.code) from None
    for phase, several in zip(phases, calls, strict=True):
        for call in several:
            if call.refused:
                raise Failure(f"{phase.describe()}: raised {call.refused}", code="OPS-CALL-RAISED")
            if call.seen:
                raise Failure(
                    f"{phase.describe()}: the kernel {call.seen[0]}",
                    code=harness.code_of(call.seen[0]),
                )
    return calls


def as_taken(source: KernelSource, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments as an adapter passes them: contiguous unless strides are taken."""
    strided = source.strided
    return {
        name: value
        if strided is True or (strided is not False and name in strided)
        else map_tensors(value, Tensor.contiguous)
        for name, value in arguments.items()
    }


def build_for(trial: Trial, sanitizer: str = "") -> harness.Build:
    """Build the trial's kernel for the harness."""
    source = trial.subject.implementation.entry
    assert source is not None
    if sanitizer:
        need_source(trial, source)
    return harness.build(source, sanitizer)


def need_source(trial: Trial, source: KernelSource | None) -> None:
    """Require a kernel that can be compiled in another way, and takes its threads from a call."""
    elsewhere = source is not None and source.language.compiled_elsewhere
    trial.need(not elsewhere, "the kernel was compiled elsewhere")


@define_check(
    "bounds",
    "the kernel accesses no memory but its arguments and results, and writes every result",
    subjects=compiled,
    order=6,
    time_limit=3.0,
    runtime="kernel alone",
)
def bounds(trial: Trial) -> None:
    """Put arguments and results next to memory that cannot be accessed; protect the arguments."""
    build = build_for(trial)
    # The third call accesses memory in pieces.
    phases = (Phase(fill=_FILLS[0]), Phase(fill=_FILLS[1], at_end=False), _SPLITS[0])

    def one(case: Case, values: bool = True) -> None:
        expected = trial.truth(case)
        (first,), (second,), _ = call(trial, build, [case], phases)
        if not values:
            return
        must_be_written(expected, (first, second), phases)
        differ = not same_bits(first.tensors(), second.tensors())
        code = "OPS-MEMORY-UNINITIALIZED" if differ else ""
        trial.compare(first.tensors(), expected, code=code)
        trial.compare(second.tensors(), expected, code=code)

    try:
        trial.each(one, examples=trial.some(2))
    except Failure as failure:
        if (code := failure.code) == "OPS-RESULT-UNWRITTEN":
            tell_sizes(trial, failure, one)
            failure.code = code
        if "-VALUE-" in code:
            # Writing where another element belongs is wrong there, and beside the last one.
            trial.each(functools.partial(one, values=False), examples=trial.some(2))
        raise
    for cohort in cohorts.some_arguments(trial.signature, trial.settings.seed):
        trial.attribution.wrong = cohort.code
        trial.sample(one, cohort.wanted, 1)
    # A kernel may leave out what is small, or nothing but zeros.
    for wanted in (Wanted(sizes=(0, 1)), Wanted(values="zeros")):
        trial.attribution.wrong = "OPS-VALUE-ZERO" if wanted.values else ""
        trial.sample(one, wanted, trial.some(8))


def must_be_written(expected: Expected, calls: Sequence[Called], phases: Sequence[Phase]) -> None:
    """Refuse results with elements that still hold, in each call, the bytes that filled memory."""
    several = zip(*(call.tensors() for call in calls), strict=True)
    for name, results in zip(expected.names, several, strict=True):
        first, *others = results
        if not first.numel() or any(other.shape != first.shape for other in others):
            continue
        held = [_holds(one, phase.fill) for one, phase in zip(results, phases, strict=False)]
        untouched = torch.stack(held).all(0)
        if count := int(untouched.sum()):
            place = torch.unravel_index(untouched.flatten().int().argmax(), first.shape)
            raise Failure(
                f"{name}{[int(i) for i in place] or ''} was never written"
                + (f", and {count - 1} more of {first.numel()} elements" if count > 1 else ""),
                code="OPS-RESULT-UNWRITTEN",
            )


def _holds(tensor: Tensor, fill: int) -> Tensor:
    memory = tensor.contiguous().flatten().view(torch.uint8)
    return (memory == fill).view(tensor.numel(), -1).all(1).view(tensor.shape)


@define_check(
    "schedules",
    "the results do not depend on how parallel_for cuts the work, nor on the order of the pieces",
    subjects=compiled,
    order=7,
    time_limit=3.0,
    runtime="kernel alone",
)
def schedules(trial: Trial) -> None:
    """Split work at odd places regardless of the grain size, shuffled, on one thread and on three.

    The first call is not split: if a kernel is already wrong in that call, splitting is not the
    cause.
    """
    need_source(trial, trial.subject.implementation.entry)
    build = build_for(trial)
    cut = False

    def every_way(case: Case) -> None:
        nonlocal cut
        expected = trial.truth(case)
        (whole,), *others = call(trial, build, [case], (_WHOLE, *_SPLITS))
        trial.compare(whole.tensors(), expected, _WHOLE.describe())
        for phase, (one,) in zip(_SPLITS, others, strict=True):
            cut |= one.split
            if one.split:
                what, code = phase.describe(), "OPS-SCHEDULES-SPLIT"
            else:
                what, code = "called again", ""
            try:
                trial.compare(one.tensors(), expected, what, code=code)
            except Failure as failure:
                if one.split and phase.threads > 1:
                    failure.args = (f"{failure}\n{_MEET}",)
                    failure.code = "OPS-DETERMINISM-THREADS"
                raise

    trial.each(every_way, examples=trial.some(3))
    if not cut:
        # Few samples may all be too small to be cut.
        trial.sample(every_way, Wanted(sizes=_SPLIT_SIZES), _SPLIT_SAMPLES)
    if not cut:
        trial.notes.append("the kernel never calls parallel_for with more than one item")


def _sanitizer_check(sanitizer: str, finds: str) -> None:
    @define_check(
        f"sanitize-{sanitizer}",
        f"{finds} (rebuilt with -fsanitize={sanitizer})",
        subjects=compiled,
        order=8,
        time_limit=10.0,
        flag=f"sanitize_{sanitizer}",
        runtime="kernel alone",
    )
    def sanitized(trial: Trial) -> None:
        build = build_for(trial, sanitizer)
        threads = 3 if sanitizer == "thread" else 1
        phases = (Phase(), Phase(seed=1, threads=threads), Phase(seed=2, threads=threads))

        def one(case: Case) -> None:
            trial.accept(case)
            call(trial, build, [case], phases)

        trial.each(one, examples=trial.some(3))


_sanitizer_check("address", "no access beside memory or to memory that was freed")
_sanitizer_check("undefined", "no undefined behaviour: overflow, shifts, misaligned access")
_sanitizer_check("thread", "no two threads access the same memory without order, one writing")
_sanitizer_check("memory", "no decision depends on memory that nothing has written")
