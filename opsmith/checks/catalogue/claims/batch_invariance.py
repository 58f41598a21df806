"""Check what `batch_invariant` promises: the batch around a slice changes none of its bits."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from opsmith.checks.cases.case import Case
from opsmith.checks.cases.failure import Failure
from opsmith.checks.cases.layouts import plain
from opsmith.checks.cases.reruns.registered_cases import shown_shapes
from opsmith.checks.cases.wanted import Wanted
from opsmith.checks.catalogue import cuda, memory_safety
from opsmith.checks.harness import Phase
from opsmith.checks.numerics import loop_sizes
from opsmith.checks.numerics.comparison import difference
from opsmith.checks.numerics.oracle import RefusedError
from opsmith.checks.protocol import PLAIN_CALLS, define_check
from opsmith.checks.trial.slices import composite_use, map_along, name_axes, size_along
from opsmith.checks.trial.trial import Trial
from opsmith.kernels import HOST

#: Sizes to draw; the least, which nothing is beside, comes last.
_SIZES = (2, 3, 4, 5, 7, 8, 9, 16, 17, 31, 33, 64, 130, 257, 1000, 1)
#: Fewer sizes, most of which are more than a warp has threads, for the emulation.
_WARPS = (2, 33, 130, 3, 64, 257, 7, 1000, 1)
#: Sizes of batches on both sides of those at which kernels take another path, and the most
#: elements that the arguments of a larger batch may have, and in an emulation.
_BATCHES, _ELEMENTS, _EMULATED = (2, 3, 8, 17, 64, 257, 1024), 1 << 16, 1 << 14

Run = Callable[[Case], list[Tensor]]
"""A function that calls the kernel."""
#: The most seconds of a call in the emulation.
_SECONDS = 120.0


@define_check(
    "batch-invariance",
    "a slice has the same bits whatever the batch around it",
    order=71,
    needs=(*PLAIN_CALLS, "parallel-dims"),
    apart=True,
)
def batch_invariance(trial: Trial) -> None:
    """Call with the slices of a batch in other batches, and on another number of threads.

    What holds along one of the `parallel_dims` and is not claimed is offered.
    """
    signature = trial.signature
    trial.need(signature.parallel_dims, "claims no batch_invariant")
    many = trial.settings.threads or max(2, trial.kernel.threads)

    def with_threads(count: int) -> Run:
        def run(case: Case) -> list[Tensor]:
            trial.kernel.threads = count
            return trial.run(trial.make(case))

        return run

    ways = {f"{many} threads": with_threads(many)}
    if trial.subject.device == HOST:
        ways["1 thread"] = with_threads(1)
    most: dict[str, int] = {}
    if not trial.cases.only_registered:
        most = loop_sizes.largest_sizes(trial.operator, trial.subject.favourite)
    claims = signature.batch_invariant
    dtypes = None if claims else (trial.subject.favourite,)
    examples = trial.some(2 if claims else 6)
    wanted = Wanted(sizes=_SIZES, max_elements=_ELEMENTS // 4, most=most)
    found = _try_dims(trial, ways, dtypes, examples, wanted)
    offered = tuple(dim for dim in found if dim not in claims)
    said = f"true on every case tried, and not claimed: batch_invariant={offered}"
    trial.need(claims, f"claims no batch_invariant{'; ' + said if offered else ''}")
    trial.notes.extend([said] if offered else [])


@define_check(
    "batch-invariance-cuda-on-cpu",
    "a slice has the same bits whatever the batch around it, by a CUDA kernel that is emulated on "
    "the CPU, in any order of blocks and threads",
    subjects=cuda.kernels_in_cuda,
    order=71,
    needs=PLAIN_CALLS,
    time_limit=10.0,
    calls=False,
)
def batch_invariance_cuda_on_cpu(trial: Trial) -> None:
    """Call the emulated kernel with the slices of a batch in other batches, and in other orders."""
    trial.need(trial.signature.batch_invariant, "claims no batch_invariant")
    build, dtypes = cuda.build_emulated(trial)

    def in_order(seed: int) -> Run:
        def run(case: Case) -> list[Tensor]:
            phase = Phase(seed=seed, emulated=True)
            ((called,),) = memory_safety.call(trial, build, [case], [phase], _SECONDS)
            return called.tensors()

        return run

    ways = {f"order {seed} of blocks and threads": in_order(seed) for seed in (1, 2, 3)}
    wanted = Wanted(sizes=_WARPS, max_elements=_EMULATED // 4)
    _try_dims(trial, ways, dtypes, trial.some(6), wanted)


def _try_dims(
    trial: Trial,
    ways: Mapping[str, Run],
    dtypes: Sequence[str | None] | None,
    examples: int,
    wanted: Wanted,
) -> list[str]:
    """Try each of the `parallel_dims`, and return those along which every case was invariant.

    Of the `ways` to call the kernel, the first is that of all batches, whose arguments have at most
    four times the elements of `wanted`.
    """
    signature, claims = trial.signature, trial.signature.batch_invariant
    uses = {dim: composite_use(signature, dim.removeprefix("*")) for dim in signature.parallel_dims}
    reasons = [
        f"{dim} cannot be sliced: {uses[dim]} depends on its size" for dim in claims if uses[dim]
    ]
    tried: set[str] = set()
    broken: set[str] = set()

    def one(case: Case) -> None:
        trial.accept(case)
        for dim in (dim for dim in uses if not uses[dim] and dim not in broken):
            calls = _Calls(trial, case, dim, ways)
            if calls.size < 2:
                continue
            tried.add(dim)
            try:
                elements = 4 * wanted.max_elements
                problem = calls.find_difference(elements, wanted.most.get(calls.dim, elements))
            except Exception:
                if dim in claims:
                    raise
                broken.add(dim)  # nobody said that the kernel takes such batches
                continue
            if problem and dim in claims:
                raise Failure(problem, code="OPS-BATCH-INVARIANCE")
            if problem:
                broken.add(dim)

    trial.each(one, dtypes=dtypes, wanted=wanted, examples=examples, most=8)
    trial.need(
        not claims or tried.intersection(claims), "; ".join(("no case has two slices", *reasons))
    )
    trial.notes.extend(reasons)
    return [dim for dim in uses if dim in tried - broken]


@dataclass(frozen=True)
class _Batch:
    """Slices of a call that make a call of their own.

    Attributes:
        words: what the batch is.
        slices: the number of each slice in the whole call.
        kept: the slice that is compared, all others being NaN; without it, all are compared.
    """

    words: str
    slices: Tensor
    kept: int | None = None

    @property
    def compared(self) -> Tensor:
        """The places in the batch of the slices that are compared."""
        return torch.arange(len(self.slices)) if self.kept is None else torch.tensor([self.kept])


class _Calls:
    """The calls of a case with other batches along one dimension."""

    def __init__(self, trial: Trial, case: Case, dim: str, ways: Mapping[str, Run]) -> None:
        self.trial, self.case, self.ways = trial, case, ways
        self.dim = dim.removeprefix("*")
        self.size = size_along(trial.signature, case.values, self.dim)

    def find_difference(self, elements: int, most: int) -> str:
        """Return how a slice differs between batches; empty where none does.

        Args:
            elements: the most elements that the arguments of a batch may have.
            most: the largest batch.
        """
        whole = _Batch(f"a batch of {self.size}", torch.arange(self.size))
        (usual, run), *others = self.ways.items()
        right = self._results(whole, run)
        for batch in self._batches(min(most, elements * self.size // max(self.case.numel, 1))):
            # The reference need not take so few slices, so many, or NaN.
            with contextlib.suppress(RefusedError):
                problem = self._compare(batch, right, run)
                if problem:
                    return f"{batch.words} and {whole.words} {problem}"
        for other, run in others:
            problem = self._compare(whole, right, run)
            if problem:
                return f"{other} and {usual} {problem}"
        return ""

    def _batches(self, most: int) -> Iterator[_Batch]:
        every, last = torch.arange(self.size), self.size - 1
        for index in sorted({0, self.size // 2, last}):
            yield _Batch(f"slice {index} alone", every[index : index + 1])
        for length in sorted({self.size // 2, last} - {1}):
            yield _Batch(f"the first {length}", every[:length])
            yield _Batch(f"the last {length}", every[-length:])
        yield _Batch("the batch in reverse", every.flip(0))
        for length in _BATCHES:
            if self.size < length <= most:
                yield _Batch(f"a batch of {length}", torch.arange(length) % self.size)
        for kept in (0, last):
            yield _Batch(f"slice {kept} among NaN", every, kept)

    def _compare(self, batch: _Batch, right: Mapping[str, Tensor], run: Run) -> str:
        got = self._results(batch, run)
        ours = [got[name][batch.compared] for name in right]
        theirs = [own[batch.slices[batch.compared]] for own in right.values()]
        found = difference(ours, theirs, [*right])
        return found and (
            f"along {self.dim} gave different bits: {found}; with {shown_shapes(self.case)}"
        )

    def _results(self, batch: _Batch, run: Run) -> dict[str, Tensor]:
        """Return the results that have the dimension, which comes first, by name."""
        trial, signature = self.trial, self.trial.signature

        def pick(item: Tensor, axis: int) -> Tensor:
            own = item.index_select(axis, batch.slices)
            if batch.kept is None or not own.is_floating_point() or own.itemsize == 1:
                return own
            others = torch.arange(len(batch.slices)) != batch.kept
            return own.index_fill(axis, others.nonzero().flatten(), torch.nan)

        case = Case(signature, map_along(signature, self.case.values, self.dim, pick))
        trial.accept(case)
        results = run(case)
        axes = name_axes(signature, results, case.values, self.dim)
        found = {}
        for result, (name, axis) in zip(results, axes, strict=True):
            if axis is not None:
                own = plain(result).movedim(axis, 0)
                # A NaN may have any sign and payload.
                numbers = own.is_floating_point() and own.itemsize > 1
                found[name] = own.masked_fill(own.isnan(), torch.nan) if numbers else own
        return found
