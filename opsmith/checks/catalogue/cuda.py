"""Check CUDA kernels without a GPU: compiled for the CPU, with a fiber for each CUDA thread.

See `emulators.cuda`. ``docs/reference/cuda.md`` lists what the emulation cannot show.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial

import torch

from opsmith.checks import harness
from opsmith.checks.cases import cohorts
from opsmith.checks.cases.boundary_values import LARGE_EQUAL, NEEDLES
from opsmith.checks.cases.case import Case
from opsmith.checks.cases.cohorts import Cohort
from opsmith.checks.cases.failure import DEPENDS, Failure, Inapplicable, need_emulators
from opsmith.checks.cases.layouts import LAYOUTS
from opsmith.checks.cases.reruns.registered_cases import MODEST, size_of, spread
from opsmith.checks.cases.subject import Subject
from opsmith.checks.cases.wanted import Wanted
from opsmith.checks.catalogue import memory_safety
from opsmith.checks.harness import Called, Phase, ptxas
from opsmith.checks.numerics.comparison import compare, same_bits
from opsmith.checks.numerics.oracle import Expected
from opsmith.checks.protocol import define_check
from opsmith.checks.trial.trial import Trial
from opsmith.errors import BuildError, MissingDependencyError
from opsmith.kernels import HOST, KernelSource, Library
from opsmith.operators import Operator
from opsmith.signature import Signature
from opsmith.signature.constraints import range_limits
from opsmith.signature.dtype_variables import parts
from opsmith.signature.parameters import TensorListType
from opsmith.signature.solving.fitting import Fitting

#: Each phase has its own order, and its own initial memory: NaN and -1, the largest numbers, large
#: negative numbers. In the second, tensors begin at a page, for kernels that look for alignment.
_PHASES = tuple(
    Phase(seed=seed, fill=fill, emulated=True, at_end=seed != 2)
    for seed, fill in ((1, 0xFF), (2, 0x7F), (3, 0xFE))
)
_LAUNCHES = Phase(emulated=True, launches_only=True)
_SECONDS = 120.0
#: More than a grid has blocks along y and z, and than 256 blocks have threads; and what cases with
#: threads reach.
_ROWS, _RUN = 262_145, 4097
#: Sizes n for which n * (1.0f / n) is less than 1, so that an index that is divided so is wrong.
_BAD_DIVISORS = (41, 47, 55, 61, 82, 83, 94)
#: Matches the name of a function of CUDA's, or of PyTorch's for CUDA, that the emulation does not
#: have; such an error is no defect of the kernel.
_UNKNOWN = re.compile(
    r"^(.+?):(\d+):.*?error: (?:'(?P<function>__\w+|cuda[A-Z]\w+)' was not declared"
    r"|'(?P<member>\w+)' is not a member of '(?:at|c10)::cuda')",
    re.MULTILINE,
)

#: Matches what nvcc says where a header of CUDA's is not there, or PyTorch's own want more of it.
_NOT_THERE = re.compile(
    r".*(?:\b(?:ATen|c10|torch|cu\w+|nv\w+)(?:/[\w./]+)?\.\w+: No such file|\btorch[_/]include/"
    r"|namespace \"(?:at|c10|torch)::cuda[\w:]*\" has no member).*"
)
#: How the emulation's remark on a call in the host's code begins.
_OUTSIDE_GRAPHS = "no CUDA graph captures "
#: Number of cases that are called one after the other in a process.
_TURNS = 8
_HIP = re.compile(r"^[ \t]*#[ \t]*include[ \t]*[<\"]hip/", re.MULTILINE)


def kernels_in_cuda(operator: Operator) -> list[Subject]:
    """Return the kernels in CUDA C++, to be called with tensors on the CPU."""
    return [
        Subject(operator, name, HOST)
        for name, kernel in operator.kernels.items()
        if kernel.source is not None and kernel.source.path.suffix == ".cu"
    ]


def need_emulation(trial: Trial, source: KernelSource) -> None:
    """Require that an emulated source uses nothing that is not emulated."""
    from opsmith.kernels.languages.emulated_cuda import find_obstacle

    try:
        obstacle = find_obstacle(source)
    except MissingDependencyError as error:
        raise Inapplicable(str(error)) from None
    trial.need(obstacle is None, f"opsmith does not emulate this kernel: {obstacle}")


def build_emulated(trial: Trial) -> tuple[harness.Build, tuple[str | None, ...]]:
    """Compile the kernel for the CPU, and return the build and its generic dtypes."""
    need_emulators(f"{trial.operator.name} (cuda), without a GPU,")
    from opsmith.kernels.languages import emulated_cuda as languages

    source = trial.subject.implementation.source
    assert source is not None
    behind_torch = not source.language.has_entry
    if behind_torch:
        lists = any(isinstance(result.type, TensorListType) for result in trial.signature.results)
        trial.need(not lists, 'opsmith emulates no kernel with api="torch" that returns a list')
        usual = trial.settings.warp == languages.USUAL_WARP
        trial.need(usual, 'a kernel with api="torch" is emulated with warps of 32 threads only')
        translated = languages.emulated_behind_torch(source)
    else:
        translated = languages.emulated(source, watched=True, warp=trial.settings.warp)
    need_emulation(trial, translated)
    if trial.settings.warp != languages.USUAL_WARP:
        trial.notes.append(f"with warps of {trial.settings.warp} threads")
    try:
        build = harness.build(translated, emulated=True)
    except BuildError as error:
        unknown = _UNKNOWN.search(str(error))
        if unknown is not None:
            path, line, *names = unknown.groups()
            name = next(filter(None, names))
            raise Inapplicable(
                f"opsmith does not emulate {name}, at {path.rpartition('/')[2]}:{line}"
            ) from None
        raise Failure(f"compiled for the CPU, {error}", code="OPS-BUILD-FAILED") from None
    return build, dtypes_of(trial, translated, build)


def dtypes_of(trial: Trial, source: KernelSource, build: harness.Build) -> tuple[str | None, ...]:
    """Return the generic dtypes of an emulated kernel's library."""
    if trial.signature.generic is None or not source.language.has_entry:
        return (trial.subject.favourite,)
    own = Library(source.signature, source.device, source.what, build.library).dtypes()
    return tuple(name for name in trial.subject.dtypes if name in own)


def _taken(trial: Trial, build: harness.Build, case: Case) -> list[Called]:
    calls = memory_safety.call(trial, build, [case], _PHASES, seconds=_SECONDS)
    return [one for (one,) in calls]


def _compare(trial: Trial, calls: Sequence[Called], expected: Expected) -> bool:
    """Compare the results of every order with the right results; return whether they are alike.

    Results with the same bits are compared once: that may run the reference again, many times.
    """
    first, *others = [call.tensors() for call in calls]
    alike = all(same_bits(first, other) for other in others)
    if not alike and not any(call.remarks for call in calls):  # they tell where such bytes are from
        memory_safety.must_be_written(expected, calls, _PHASES)
    problems = [] if alike else [compare(one.tensors(), expected).problem for one in calls]
    depends = len(set(problems)) > 1  # on what memory held before, which is other in each
    in_any_order = f"in each of {len(calls)} orders of blocks and threads"
    for phase, one in zip(_PHASES, calls[:1] if alike else calls, strict=False):
        try:
            what = in_any_order if all(problems) else phase.describe()
            trial.compare(one.tensors(), expected, what)
        except Failure as failure:
            unwritten = [text for text in one.remarks if "which nothing had written" in text]
            remarks = [text for text in one.remarks if depends or text not in unwritten]
            if not remarks:
                raise
            code = "OPS-MEMORY-UNINITIALIZED" if depends and unwritten else failure.code
            raise Failure("\n".join([str(failure), *remarks]), code=code) from None
    return alike


@define_check(
    "cuda-on-cpu",
    "a CUDA kernel, emulated on the CPU, gives right results in any order of blocks and threads, "
    "without races, divergent barriers or accesses beside its memory",
    subjects=kernels_in_cuda,
    order=9,
    time_limit=10.0,  # PyTorch's headers alone compile for a minute or two
    calls=False,
)
def cuda_on_cpu(trial: Trial) -> None:
    """Run each case in three orders, with different initial memory in each."""
    run_in_orders(trial, *build_emulated(trial))


def run_in_orders(trial: Trial, build: harness.Build, dtypes: tuple[str | None, ...]) -> None:
    """Run each case of an emulated kernel in three orders, and compare the results."""
    reproducible, outside_graphs = True, ""
    taken: list[Case] = []

    def one(case: Case) -> None:
        nonlocal reproducible, outside_graphs
        expected = trial.truth(case)
        calls = _taken(trial, build, case)
        for call in calls:
            outside = [text for text in call.remarks if text.startswith(_OUTSIDE_GRAPHS)]
            outside_graphs = outside_graphs or "".join(outside).replace("\n  at ", ", at ")
            call.remarks = [text for text in call.remarks if text not in outside]
        try:
            reproducible &= _compare(trial, calls, expected)
        except Failure as failure:
            if compare(calls[0].tensors(), expected).problem is None:
                _tell_earlier(trial, build, failure, case, expected)
            raise
        if case.numel <= MODEST and case.dtype in (None, dtypes[0]):
            taken.append(case)

    trial.each(one, dtypes=dtypes, examples=trial.some(3))
    for cohort, dtype in () if trial.cases.only_registered else _cohorts(trial, dtypes):
        trial.attribution.wrong, trial.counts.cohort = cohort.code, cohort.name
        trial.sample(one, cohort.wanted, cohort.examples, dtype)
    _call_in_turn(trial, build, spread(sorted(taken, key=size_of), _TURNS))
    if not trial.cases.only_registered:
        _only_launch(trial, build)
    if not reproducible:
        trial.notes.append(
            "not reproducible: the last bits depend on the order of blocks and threads"
        )
    if outside_graphs and torch.Tag.cudagraph_unsafe not in trial.operator.overload.tags:
        trial.notes.append(
            f"{outside_graphs}. Unless the operator has tags=(torch.Tag.cudagraph_unsafe,), "
            "PyTorch tries to capture it"
        )


def _cohorts(trial: Trial, dtypes: Sequence[str | None]) -> Iterator[tuple[Cohort, str | None]]:
    """Yield what normal sampling does not reach, for a kernel that takes long for each case."""
    first = dtypes[0]
    yield Cohort("small", Wanted(sizes=(0, 1)), 6), first
    source = trial.subject.implementation.source
    if source is not None and source.strided:
        yield Cohort("layouts", Wanted(layouts=LAYOUTS), 6), first
    for cohort in cohorts.values(trial.signature, trial.subject.favourite):
        # NaN and infinity have to reach several places of a block.
        examples = 3 if cohort.name in ("NaN", "infinity") else 1
        if cohort.examples:
            yield replace(cohort, examples=examples), first
    for cohort in cohorts.some_arguments(trial.signature, trial.settings.seed):
        yield cohort, first
    divisors = Wanted(sizes=_BAD_DIVISORS)
    yield Cohort("sizes that floats divide badly", divisors, 3, code="OPS-SIZE-BOUNDARY"), first
    # Try sizes around those of warps and blocks, and long sums and rows in half precision.
    fixed = cohorts.fixed_dtypes(trial.signature)
    for cohort in cohorts.sizes(trial.signature, trial.settings.seed):
        if cohort.examples:
            yield cohort, first
        elif cohort.wanted.values not in (NEEDLES, LARGE_EQUAL):
            for half in cohort.halves:
                own = [dtype for dtype in dtypes if half in parts(dtype)]
                if own or half in fixed:
                    yield replace(cohort, examples=1), own[0] if own else first
                    break


def _tell_earlier(
    trial: Trial, build: harness.Build, failure: Failure, case: Case, expected: Expected
) -> None:
    """Say of a failure that each order is right in a process of its own, if that is so."""
    with suppress(Failure):
        for phase in _PHASES:
            ((call,),) = memory_safety.call(trial, build, [case], [phase], _SECONDS)
            if compare(call.tensors(), expected).problem is not None:
                return
        failure.args, failure.code = (f"{failure}\n{DEPENDS}",), "OPS-STATE-EARLIER"


def _call_in_turn(trial: Trial, build: harness.Build, cases: list[Case]) -> None:
    """Call with one case after the other in a process: what a call leaves, others may find.

    The first cases are the smallest and the largest.
    """
    cases = [cases[n // 2 if n % 2 == 0 else -1 - n // 2] for n in range(len(cases))]
    trial.counts.cohort = "one after the other"
    calls: list[Called] = []

    def compare_call(place: int, case: Case) -> None:
        try:
            if not calls:
                calls.extend(memory_safety.call(trial, build, cases, _PHASES[:1], _SECONDS)[0])
            trial.compare(calls[place].tensors(), trial.truth(case))
        except Failure as failure:
            what = f"after {place or 'some'} calls with other arguments in the same process: "
            raise Failure(f"{what}{failure}", code="OPS-STATE-EARLIER") from None

    for place, case in enumerate(cases if len(cases) > 1 else ()):
        trial.runner.one(partial(compare_call, place), case)


def _only_launch(trial: Trial, build: harness.Build) -> None:
    """Check launches for sizes of 0, and above the limits of grids, where millions of threads run.

    No thread does here. A kernel that returns early for one size of 0 may launch no blocks for
    another.
    """
    trial.attribution.wrong = "OPS-CUDA-LAUNCH"

    def launched(case: Case) -> None:
        try:
            memory_safety.call(trial, build, [case], [_LAUNCHES], seconds=_SECONDS)
        except Failure as failure:
            if failure.code != "OPS-CUDA-LAUNCH":
                return  # no thread has run, so the results cannot be right
            trial.accept(case)
            raise

    fitting = Fitting(trial.signature)
    for cohort, name in itertools.product(("a size of 0", "many rows"), trial.signature.dims):
        wished = 0 if cohort == "a size of 0" else _ROWS
        size = fitting.near(name, wished)
        if size is not None and (size > _RUN or size == wished):
            trial.counts.cohort = cohort
            forced = {name: size} if wished else _emptied(trial.signature, name)
            wanted = Wanted(sizes=(2, 1, 3), forced=forced, max_elements=1 << 20)
            trial.sample(launched, wanted, 1)


def _emptied(signature: Signature, name: str) -> dict[str, int]:
    """Return a size of 0, with the sizes of indices that then have no value to take."""
    dims = dict.fromkeys(signature.dims, 2) | {name: 0}
    for parameter in signature.tensors * 2:  # some are indices into others
        shape = parameter.tensor_type and parameter.tensor_type.shape
        own = [str(dim) for dim in shape.dims if str(dim) in dims] if shape else []
        for one in parameter.ranges if own and not parameter.optional else ():
            with suppress(KeyError, TypeError):  # it depends on an argument, or has an open end
                low, high = range_limits(one, dims, {})
                dims |= {own[-1]: 0} if high < low else {}
    return {name: size for name, size in dims.items() if not size}


@define_check(
    "nvcc",
    "nvcc compiles the kernel for the GPUs asked for, and says its registers and shared memory",
    subjects=kernels_in_cuda,
    order=13,
    time_limit=10.0,
    samples=False,
    calls=False,
)
def compiled_by_nvcc(trial: Trial) -> None:
    """Compile for every architecture, and note registers, spills and shared memory."""
    source = trial.subject.implementation.source
    assert source is not None
    hip = _HIP.search(source.path.read_text(errors="replace"))
    trial.need(hip is None, "the source is in HIP, which nvcc does not compile")
    unit = None
    if not source.language.has_entry:
        need_emulators(f"{source.what} for nvcc")
        from opsmith.kernels.languages.emulated_cuda import unit_for_nvcc

        unit = unit_for_nvcc(source)
    try:
        found = ptxas.resources_of(source, unit)
    except MissingDependencyError as error:
        raise Inapplicable(str(error)) from None
    except BuildError as error:
        missing = None if source.language.has_entry else _NOT_THERE.search(str(error))
        what = f"opsmith's stand-ins for PyTorch's CUDA headers lack this: {missing and missing[0]}"
        trial.need(missing is None, what)
        raise Failure(str(error), code="OPS-BUILD-FAILED") from None
    trial.notes.extend(ptxas.described(found))
