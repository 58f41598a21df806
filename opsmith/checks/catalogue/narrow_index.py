"""Check that indices reach beyond 2**31 elements, in memory that is mapped again and again.

A tensor of gigabytes is a few megabytes of memory, and only the last pieces of ``parallel_for`` and
the last blocks of a grid run. There an index that was computed in 32 bits lies outside the tensor,
and a loop that counts in 32 bits does not arrive. A failure that a small call has as well is left
to the other checks.
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
from opsmith.checks.cases.wanted import Wanted
from opsmith.checks.catalogue import memory_safety
from opsmith.checks.catalogue.cuda import build_emulated, kernels_in_cuda
from opsmith.checks.harness import Fault, Phase
from opsmith.checks.numerics.comparison import compare
from opsmith.checks.numerics.oracle import RefusedError
from opsmith.checks.protocol import define_check
from opsmith.checks.trial.trial import Trial
from opsmith.errors import BuildError

#: The least number of elements, and the number that they stay below: above 2**31 by so much that
#: the last pieces lie beyond; just below 2**32, where 32 bits of 2, 4 and 8 times an index are
#: negative too; few enough for 32 bits; and few enough for the reference.
_RANGES = (
    *((2_250_000_000, 2**32), (4_050_000_000, 2**32)),
    *((70_000_000, 140_000_000), (4096, 16384)),
)
#: The bytes from which the harness maps memory again and again.
_VAST_BYTES = 64 << 20
#: The bytes of addresses that a call may take.
_MOST_BYTES = 512 << 30
#: The seconds that all calls of a kernel may take, and one call. Of the processor's seconds, the
#: harness gives a call 8.
_SECONDS, _CALL_SECONDS = 120.0, 80.0
#: The processor's seconds of all calls, and of one that is followed by a larger one.
_PROCESSOR_SECONDS, _QUICK_SECONDS = 12.0, 3.0
#: Why a call takes as long, although only the ends of ``parallel_for`` and of grids run.
_SLOW = "a loop over them in one piece, or one thread, takes over 8 s"
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
    """The outcome of a call: nothing wrong, a fault, or a refusal."""

    fault: Fault | None = None
    refused: str = ""
    untouched: set[str] = field(default_factory=set)
    unsure: bool = False  # whether blocks that did not run would have written what was read


class _NothingSeenError(Exception):
    """A call does not show whether indices reach; the message says why."""


@define_check(
    "narrow-index",
    "indices of a C++ or CUDA kernel reach beyond 2**31 elements (in memory that is mapped again "
    "and again)",
    subjects=lambda operator: [*memory_safety.compiled(operator), *kernels_in_cuda(operator)],
    order=17,
    time_limit=10.0,
    runtime="kernel alone",
    calls=False,
)
def narrow_index(trial: Trial) -> None:
    """Run the ends of calls in which each tensor in turn has more than 2**31 elements."""
    kernel = _built(trial)
    small = kernel.author_case() if trial.cases.only_registered else None
    small = small or small_case(
        trial.signature,
        Wanted(kernel.dtype, (3, 2, 4), ranks=(2,), lengths=(1,), seed=trial.settings.seed),
        kernel.is_taken,
    )
    trial.need(small is not None, "the reference takes no sample")
    assert small is not None
    looked: list[str] = []
    missing: list[str] = []
    for *large, fewer, few in large_calls(small, *_RANGES):
        # Samples fit the declaration; the author's cases may be right as they are alone.
        if fewer is None or (small.origin and (few is None or kernel.wrong(few))):
            continue
        seen = ""
        for call in large:
            if call is None or sum(bytes_of(call)) > _MOST_BYTES:
                continue
            began = _processor_seconds()
            trial.counts.ran += 1
            try:
                kernel.judge(call, fewer, few)
                seen = call.describe_large()
            except NoValue:
                continue
            except _NothingSeenError as why:
                missing.append(f"{why}: {call.describe_large()}")
                break
            if _processor_seconds() - began > _QUICK_SECONDS:
                break
        looked += [seen] if seen else []
    if not looked:
        where = " outside of lists" * any(p.is_tensor_list for p in trial.signature.tensors)
        none = f"no tensor{where} can have more than 2**31 elements"
        raise Inapplicable(missing[0] if missing else none)
    trial.notes.append(f"with {'; '.join(looked)}")
    trial.notes += [f"not looked at: {one}" for one in missing]


def _built(trial: Trial) -> _Kernel:
    source = trial.subject.implementation.source
    dtype = trial.subject.favourite
    assert source is not None
    emulated = source.path.suffix == ".cu"
    try:
        if emulated:
            build, dtypes = build_emulated(trial)
            dtype = dtype if dtype in dtypes else dtypes[0]
        else:
            build = harness.build(source, wraps=True)
    except (BuildError, Failure) as error:
        first = str(error).partition("\n")[0]
        raise Inapplicable(f"the kernel does not compile: {first}") from None
    return _Kernel(trial, build, dtype, emulated)


def _processor_seconds() -> float:
    used = os.times()
    return used.children_user + used.children_system


@dataclass
class _Kernel:
    """A kernel that is built, and the time that its calls have left."""

    trial: Trial
    build: harness.Build
    dtype: str | None
    emulated: bool
    ends: float = field(default_factory=lambda: time.monotonic() + _SECONDS)
    began: float = field(default_factory=_processor_seconds)

    def author_case(self) -> Case | None:
        """Return the author's smallest case whose tensors all have elements."""
        cases = self.trial.cases.author_cases(self.dtype)
        return next((c for c in cases if all(t.numel() for _, t in c.tensors())), None)

    def is_taken(self, case: Case) -> bool:
        """Return whether the reference takes a case."""
        try:
            self.trial.accept(case)
        except RefusedError:
            return False
        return True

    def wrong(self, few: LargeCall) -> str:
        """Return what is wrong in a call of the same kind with few elements; empty for nothing."""
        try:
            case = Case(self.trial.signature, few.values(100 * self.trial.settings.seed))
            truth = self.trial.truth(case)
            phase = Phase(seed=int(self.emulated), emulated=self.emulated)
            ((done,),) = memory_safety.call(self.trial, self.build, [case], [phase])
        except (RefusedError, NoValue):
            return "the reference refuses such a call with few elements"
        except Failure:
            return "it fails with few elements"
        return "it is wrong with few elements" if compare(done.tensors(), truth).problem else ""

    def run(self, call: LargeCall, seed: int = 0) -> _Outcome:
        """Run a call, with values of a seed."""
        seconds = min(_CALL_SECONDS, self.ends - time.monotonic())
        if seconds < 1.0 or _processor_seconds() - self.began > _PROCESSOR_SECONDS:
            raise _NothingSeenError("no time was left")
        arguments: dict[str, Any] = dict(call.small.values)
        sizes = bytes_of(call)
        for number, (name, shape) in enumerate(call.shapes.items()):
            pattern = call.pattern(name, 100 * (self.trial.settings.seed + seed) + number)
            vast = sizes[number] >= _VAST_BYTES
            arguments[name] = (harness.repeated if vast else whole)(pattern, shape)
        phase = Phase(emulated=self.emulated, vast=True, fill=0)
        try:
            calls = harness.run(self.build, self.trial.signature, [arguments], [phase], seconds)
        except Fault as fault:
            return _Outcome(fault)
        ((done,),) = calls
        return _Outcome(None, done.refused, set(done.untouched), "unsure" in done.remarks)

    def judge(self, large: LargeCall, fewer: LargeCall, few: LargeCall | None) -> None:
        """Compare a large call with the same call with fewer elements."""
        found = self.run(large)
        if found.fault is not None and not _is_narrow(found.fault, large):
            slow = found.fault.code == "OPS-CALL-HANG"
            raise _NothingSeenError(_SLOW if slow else f"a large call ends by {found.fault.code}")
        if re.search("bad_alloc|out of memory", found.refused):
            raise _NothingSeenError("the kernel allocates gigabytes itself")
        if found.fault is None and not found.refused and not found.untouched:
            return
        if found.untouched and found.unsure:
            raise _NothingSeenError("blocks that do not run decide what is read")
        other = self.run(fewer)
        if other.fault is not None or other.refused:
            raise _NothingSeenError("the kernel goes wrong with fewer elements too")
        if found.refused:
            self.trial.notes.append(f"the kernel refuses more: {found.refused.splitlines()[0]}")
            return
        what = str(found.fault or "")
        if found.fault is None:
            # Values may decide what is accessed: others must leave the same out.
            sizes = zip(fewer.shapes, bytes_of(fewer), strict=False)
            unseen = {f"argument '{name}'" for name, size in sizes if size < _VAST_BYTES}
            untouched = found.untouched - other.untouched - unseen
            untouched &= self.run(large, 1).untouched if untouched else set()
            untouched -= self.run(fewer, 1).untouched if untouched else set()
            what = f"nothing accesses {' and '.join(sorted(untouched))}" if untouched else ""
        wrong = self.wrong(few) if what and few is not None else ""
        if what and not wrong:
            raise Failure(_message(what, large, fewer), code="OPS-SIZE-NARROW")
        if what or len(found.untouched) == sum(n >= _VAST_BYTES for n in bytes_of(large)):
            raise _NothingSeenError(wrong or "nothing is read")


def _message(what: str, large: LargeCall, fewer: LargeCall) -> str:
    limit = f'where=("{large.product} < 2147483648",)'
    declare = f", or declare {limit}" if large.product else ""
    return (
        f"{what}\n"
        f"called with {large.describe()}, and not with {fewer.describe()}: an index, a size or an "
        f"offset is computed in 32 bits. Compute it in int64_t{declare}"
    )


def _is_narrow(fault: Fault, call: LargeCall) -> bool:
    """Return whether a 32-bit index may be the cause of a fault."""
    grid = _GRID.search(str(fault))
    if grid is not None:
        blocks = math.prod(map(int, grid.groups()))
        # A block for each row may be more than a grid has.
        return not 0 < blocks <= call.elements
    return fault.code in _CODES
