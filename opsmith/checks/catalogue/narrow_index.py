"""Check that indices reach beyond 2**31 elements, in memory that is mapped again and again.

A tensor of gigabytes is a few megabytes of memory, and only the last pieces of ``parallel_for`` and
the last blocks of a grid run. So an index that is computed in 32 bits leaves its memory there, and
a kernel that counts in 32 bits accesses nothing. What happens with fewer elements too has another
cause, and is not this check's.
"""

from __future__ import annotations

import math
import os
import re
import time
from dataclasses import dataclass, field
from typing import Any

from opsmith.checks import harness
from opsmith.checks.cases.case import Case
from opsmith.checks.cases.failure import Failure, Inapplicable
from opsmith.checks.cases.integer_runs import NoValue
from opsmith.checks.cases.large_calls import LargeCall, bytes_of, large_calls, small_case, whole
from opsmith.checks.cases.sampling import Wanted
from opsmith.checks.cases.subject import Subject
from opsmith.checks.catalogue.cuda import build_emulated, kernels_in_cuda
from opsmith.checks.catalogue.memory_safety import compiled
from opsmith.checks.harness import Fault, Phase
from opsmith.checks.numerics.oracle import RefusedError
from opsmith.checks.protocol import define_check
from opsmith.checks.trial.trial import Trial
from opsmith.errors import BuildError
from opsmith.operators import Operator

#: The least number of elements, and the number that they stay below: above 2**31 by so much that
#: the last pieces lie beyond; just below 2**32, where 32 bits of 2, 4 and 8 times an index are
#: negative too; and few enough for 32 bits.
_RANGES = ((2_250_000_000, 2**32), (4_050_000_000, 2**32), (70_000_000, 140_000_000))
#: The bytes from which the harness maps memory again and again.
_VAST_BYTES = 64 << 20
#: The bytes of addresses that a call may take.
_MOST_BYTES = 512 << 30
#: The seconds for all calls of a kernel, and for one; the harness also limits its processor time.
_SECONDS, _CALL_SECONDS = 90.0, 60.0
#: The processor's seconds that a call takes if it is followed by a larger one.
_QUICK_SECONDS = 3.0
#: What a 32-bit index does: it leaves the memory, or a launch is refused.
_CODES = (
    "OPS-MEMORY-BOUNDS",
    "OPS-MUTATION-UNDECLARED",
    "OPS-CALL-CRASH",
    "OPS-CUDA-HOST",
    "OPS-CUDA-LAUNCH",
    "OPS-CUDA-UNDEFINED",
)
_GRID = re.compile(r"with grid \((\d+), (\d+), (\d+)\)")


@dataclass
class _Outcome:
    """What a call did: nothing wrong, a fault, or a refusal."""

    fault: Fault | None = None
    refused: str = ""
    untouched: set[str] = field(default_factory=set)


def _subjects(operator: Operator) -> list[Subject]:
    return [*compiled(operator), *kernels_in_cuda(operator)]


@define_check(
    "narrow-index",
    "indices of a C++ or CUDA kernel reach beyond 2**31 elements (in memory that is mapped again "
    "and again)",
    subjects=_subjects,
    order=17,
    time_limit=10.0,
    runtime="kernel alone",
    calls=False,
)
def narrow_index(trial: Trial) -> None:
    """Run the ends of calls in which each tensor in turn has more than 2**31 elements."""
    trial.need(not trial.only_registered, "the author's cases alone are right, and have fewer")
    build, dtype, emulated = _built(trial)
    small = small_case(
        trial.signature,
        Wanted(dtype, (3, 2, 4), ranks=(2,), lengths=(1,), seed=trial.settings.seed),
        lambda case: _is_taken(trial, case),
    )
    trial.need(small is not None, "the reference takes no sample")
    assert small is not None
    ends = time.monotonic() + _SECONDS
    phase = Phase(emulated=emulated, vast=True, fill=0)
    looked: list[str] = []
    missing: list[str] = []
    for *large, fewer in large_calls(small, *_RANGES):
        for call in filter(None, large):
            seconds = min(_CALL_SECONDS, ends - time.monotonic())
            if fewer is None or seconds < 1.0 or sum(bytes_of(call)) > _MOST_BYTES:
                continue
            begun = _processor_seconds()
            try:
                said = _judge(_Runs(trial, build, phase, seconds), call, fewer)
            except NoValue:
                continue
            if said:
                missing.append(f"{said} {call.describe()}")
                break
            looked.append(call.describe())
            if _processor_seconds() - begun > _QUICK_SECONDS:
                break
    trial.counts.ran = len(looked)
    if not looked:
        raise Inapplicable(missing[0] if missing else "no tensor can have more than 2**31 elements")
    trial.notes.append(f"with {'; '.join(looked)}")
    trial.notes += [f"not looked at: {one}" for one in missing]


def _built(trial: Trial) -> tuple[harness.Build, str | None, bool]:
    source = trial.subject.implementation.source
    dtype = trial.subject.favourite
    assert source is not None
    try:
        if source.path.suffix != ".cu":
            return harness.build(source, wraps=True), dtype, False
        build, dtypes = build_emulated(trial)
    except (BuildError, Failure) as error:
        first = str(error).partition("\n")[0]
        raise Inapplicable(f"the kernel does not compile: {first}") from None
    return build, dtype if dtype in dtypes else dtypes[0], True


def _is_taken(trial: Trial, case: Case) -> bool:
    try:
        trial.accept(case)
    except RefusedError:
        return False
    return True


def _processor_seconds() -> float:
    used = os.times()
    return used.children_user + used.children_system


@dataclass
class _Runs:
    """Runs calls of one kernel."""

    trial: Trial
    build: harness.Build
    phase: Phase
    seconds: float

    def run(self, call: LargeCall, seed: int = 0) -> _Outcome:
        """Run a call, with values of a seed."""
        arguments: dict[str, Any] = dict(call.small.values)
        sizes = bytes_of(call)
        for number, (name, shape) in enumerate(call.shapes.items()):
            pattern = call.pattern(name, 100 * (self.trial.settings.seed + seed) + number)
            vast = sizes[number] >= _VAST_BYTES
            arguments[name] = (harness.repeated if vast else whole)(pattern, shape)
        try:
            ((done,),) = harness.run(
                self.build, self.trial.signature, [arguments], [self.phase], self.seconds
            ).calls
        except Fault as fault:
            return _Outcome(fault)
        return _Outcome(None, done.refused, set(done.untouched))


def _judge(run: _Runs, large: LargeCall, fewer: LargeCall) -> str:
    """Compare a large call with the same call with fewer elements.

    Returns:
        Why the large call shows nothing; empty if it showed that the indices reach.

    Raises:
        Failure: only the large call goes wrong.
    """
    found = run.run(large)
    if found.fault is not None and not _is_narrow(found.fault, large):
        return f"{str(found.fault).splitlines()[0]}:"
    if "bad_alloc" in found.refused:
        return "the kernel allocates gigabytes itself:"
    if found.refused:
        run.trial.notes.append(f"the kernel refuses more: {found.refused.splitlines()[0]}")
    if found.refused or (found.fault is None and not found.untouched):
        return ""
    other = run.run(fewer)
    if other.fault is not None or other.refused:
        return "the kernel goes wrong with fewer elements too:"
    code = "OPS-SIZE-NARROW"
    if found.fault is not None:
        raise Failure(_message(str(found.fault), large, fewer), code=code)
    # Values may decide what is accessed: others must leave the same out.
    untouched = found.untouched - other.untouched
    untouched &= run.run(large, 1).untouched if untouched else set()
    untouched -= run.run(fewer, 1).untouched if untouched else set()
    if untouched:
        what = f"nothing accesses {' and '.join(sorted(untouched))}"
        raise Failure(_message(what, large, fewer), code=code)
    vast = sum(size >= _VAST_BYTES for size in bytes_of(large))
    return "" if len(found.untouched) < vast else "the ends of its loops and grids access nothing:"


def _message(what: str, large: LargeCall, fewer: LargeCall) -> str:
    product = "*".join(large.grown)
    else_ = "" if "*" in product[:1] else f', or declare where=("{product} < 2147483648",)'
    return (
        f"{what}\n"
        f"called with {large.describe()}, and not with {fewer.describe()}: an index, a size or an "
        f"offset is computed in 32 bits. Compute it in int64_t{else_}"
    )


def _is_narrow(fault: Fault, call: LargeCall) -> bool:
    """Return whether a 32-bit index may be the cause of a fault."""
    grid = _GRID.search(str(fault))
    if grid is not None:
        blocks = math.prod(map(int, grid.groups()))
        # A block for each row may be more than a grid has.
        return not 0 < blocks <= call.elements
    return fault.code in _CODES
