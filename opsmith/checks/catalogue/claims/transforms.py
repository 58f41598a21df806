"""Check what `parallel_dims` promises: independent slices, and batches by vmap."""

from __future__ import annotations

import contextlib
from functools import partial
from typing import Any

import torch
from torch import Tensor

from opsmith.checks.cases.case import Case
from opsmith.checks.cases.failure import Failure, Inapplicable
from opsmith.checks.cases.reruns.registered_cases import alike
from opsmith.checks.cases.wanted import Wanted
from opsmith.checks.numerics.oracle import Expected, RefusedError
from opsmith.checks.protocol import PLAIN_CALLS, define_check
from opsmith.checks.trial.slices import composite_use, map_along, size_along, slice_truth
from opsmith.checks.trial.trial import Trial
from opsmith.kernels import HOST
from opsmith.operators.core.arguments import flatten


@define_check(
    "parallel-dims",
    "each slice along the parallel_dims is computed on its own",
    order=70,
    needs=PLAIN_CALLS,
    runtime="vmap",
    apart=True,
)
def parallel_dims(trial: Trial) -> None:
    """Compare the results for slices of the arguments with slices of the whole call's results."""
    signature = trial.signature
    trial.attribution.wrong = "OPS-PARALLEL-DIMS-CLAIM"
    trial.need(signature.parallel_dims, "claims no parallel_dims")
    reasons = []
    for claimed in signature.parallel_dims:
        try:
            _along(trial, claimed)
        except Inapplicable as reason:
            reasons.append(str(reason))
    trial.need(trial.counts.ran, "; ".join(reasons))
    trial.notes.extend(reasons)


def _along(trial: Trial, claimed: str) -> None:
    signature, dim = trial.signature, claimed.removeprefix("*")
    where = composite_use(signature, dim)
    trial.need(not where, f"{claimed} cannot be sliced: {where} depends on its size")

    def one(case: Case) -> None:
        truth = trial.truth(case)
        arguments = trial.make(case)
        size = size_along(signature, arguments, dim)
        # Try slices of one element, and halves, since values may leak from neighbours only.
        cuts = [(index, 1) for index in range(min(size, 5))]
        cuts += [(0, size // 2), (size // 2, size - size // 2)] if size > 3 else []
        for start, length in cuts:
            cut = partial(_cut, start=start, length=length)
            part = map_along(signature, trial.make(case), dim, cut)
            got = trial.run(part)
            expected = slice_truth(signature, truth, dim, start, length)
            trial.compare(got, expected, f"the slice {start}:{start + length} along {claimed}")

    wanted = Wanted(sizes=(2, 3, 4, 1, 5, 7))
    trial.each(one, dtypes=(trial.subject.favourite,), wanted=wanted, examples=12, most=12)


def _cut(item: Tensor, axis: int, start: int, length: int) -> Tensor:
    return item.narrow(axis, start, length).clone()


@define_check(
    "vmap",
    "torch.vmap gives what a loop over the batch gives",
    order=75,
    runtime="vmap",
    needs=(*PLAIN_CALLS, "parallel-dims"),
)
def vmap(trial: Trial) -> None:
    """Batch all tensors together, then each tensor alone."""
    signature = trial.signature
    trial.attribution.wrong = "OPS-VMAP-WRONG"
    trial.need(not signature.mutated, "mutates its arguments")
    trial.need(not signature.data_dependent, "samples give results of different sizes")
    trial.need(signature.tensors, "takes no tensor")
    batch = 3
    only = trial.operator.only_registered_cases

    def one(case: Case) -> None:
        names = [
            p.name for p in signature.tensors if p.is_tensor and case.values[p.name] is not None
        ]
        seed = trial.settings.seed
        if only:  # other numbers, and numbers of different cases, need not fit each other
            samples = [case, *alike(trial.operator, case, seed), case, case][:batch]
        else:
            samples = [case, *(_shuffled(trial, case, seed + n) for n in range(1, batch))]
        truths = [trial.truth(sample) for sample in samples]
        choices = [names, *([name] for name in names)] if len(names) > 1 else [names]
        for position, batched in enumerate(choices):
            if not batched or (position > 2):
                continue
            whole = batched == names
            own = [case] * batch if only and not whole else samples
            # One call then has numbers of several cases, which the reference may refuse.
            with contextlib.nullcontext() if whole else contextlib.suppress(RefusedError):
                _batch(trial, own, batched, truths if whole else _truths_of(trial, own, batched))

    wanted = Wanted(sizes=(2, 3, 1, 4), max_elements=512)
    trial.each(one, dtypes=(trial.subject.favourite,), wanted=wanted, examples=8, most=8)


def _truths_of(trial: Trial, samples: list[Case], batched: list[str]) -> list[Expected]:
    """Return the right results where only some arguments are those of each sample."""
    first = samples[0].make(HOST)
    return [
        trial.truth(Case(trial.signature, {**first, **{name: own[name] for name in batched}}))
        for own in (sample.make(HOST) for sample in samples)
    ]


def _shuffled(trial: Trial, case: Case, seed: int) -> Case:
    """Shuffle each floating tensor: its values, or what its constraints keep together.

    Where the reference refuses them then, return the case as it is.
    """
    generator = torch.Generator().manual_seed(seed)
    values: dict[str, Any] = {}
    for name, value in case.values.items():
        if isinstance(value, Tensor) and value.is_floating_point():
            constraints = case.signature.by_name[name].constraints
            along = max((constraint.along for constraint in constraints), default=0)
            parts = (
                value.reshape(-1, *value.shape[value.dim() - along :]) if value.numel() else value
            )
            order = torch.randperm(len(parts), generator=generator)
            value = parts[order].reshape(value.shape)
        values[name] = value
    other = Case(case.signature, values, {})
    try:
        trial.accept(other)
    except RefusedError:
        return case
    return other


def _batch(trial: Trial, samples: list[Case], batched: list[str], truths: list[Expected]) -> None:
    signature, device = trial.signature, trial.subject.device
    arguments = samples[0].make(device)
    # The batch dimension is first for one argument, and last for the next.
    axes = {name: (0 if n % 2 == 0 else -1) for n, name in enumerate(batched)}
    stacked = [
        torch.stack([sample.make(device)[name] for sample in samples], axes[name])
        for name in batched
    ]

    def function(*inputs: Tensor) -> Any:
        return trial.call({**arguments, **dict(zip(batched, inputs, strict=True))})

    what = f"vmap over {', '.join(batched)}"
    try:
        returned = torch.vmap(function, in_dims=tuple(axes[name] for name in batched))(*stacked)
    except Exception as error:
        raise Failure(f"{what} {trial.raised(error)}", code="OPS-VMAP-RAISED") from error
    results = flatten(signature, returned, {})
    for index, truth in enumerate(truths):
        trial.compare([result[index] for result in results], truth, f"{what}, sample {index}")
