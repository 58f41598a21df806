"""Check that the out variant computes what a call returns, in memory that it is given."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from opsmith.checks.cases.case import Case
from opsmith.checks.cases.failure import Failure
from opsmith.checks.cases.layouts import bits
from opsmith.checks.numerics.comparison import difference
from opsmith.checks.protocol import PLAIN_CALLS, define_check
from opsmith.checks.trial.trial import Trial
from opsmith.errors import DeclarationError

_CODE = "OPS-OUT-VARIANT"


@define_check(
    "out",
    "op.out gives the same bits in memory that it is given, and refuses other memory",
    order=17,
    needs=PLAIN_CALLS,
)
def out(trial: Trial) -> None:
    """Give memory that holds other bits, off alignment and transposed, then memory that differs."""
    operator, names = trial.operator, [result.name for result in trial.signature.results]
    trial.need(not trial.subject.adopted, "defined elsewhere, with the out variants that it has")
    try:
        variant = operator.out
    except DeclarationError as error:
        trial.need(False, str(error).partition("because ")[2])

    def write(arguments: dict[str, object], memory: list[Tensor]) -> list[Tensor]:
        positional, keywords = operator.split(arguments)
        returned = variant(*positional, **keywords, **dict(zip(names, memory, strict=True)))
        return list(returned) if isinstance(returned, tuple) else [returned]

    def one(case: Case) -> None:
        trial.accept(case)
        device = trial.subject.device
        right = trial.run(case.make(device))
        for what, memory in _memory(right):
            returned = write(case.make(device), memory)
            if [id(one) for one in returned] != [id(one) for one in memory]:
                raise Failure(f"{what}: returned other tensors than it was given", code=_CODE)
            found = difference(memory, right, names)
            # A kernel whose equal calls differ is told of by the row `determinism`.
            if found and not difference(trial.run(case.make(device)), right, names):
                raise Failure(f"{what}: gave other bits than a call: {found}", code=_CODE)
        for what, place, wrong in _wrong(right):
            memory = [*right[:place], wrong, *right[place + 1 :]]
            try:
                write(case.make(device), memory)
            except Exception as error:
                if f"'{names[place]}'" in str(error):
                    continue
                raise
            raise Failure(f"took {what} for {names[place]!r}", code=_CODE)

    trial.each(one, examples=trial.some(4), most=3)


def _memory(right: list[Tensor]) -> Iterator[tuple[str, list[Tensor]]]:
    """Yield memory for results, all of whose bits differ from those of the right results."""
    others = [_other_bits(one) for one in right]
    yield "given memory", [one.clone() for one in others]
    # From the second element on: a kernel may count on the alignment of what was allocated for it.
    yield (
        "given memory in the middle of other memory",
        [one.new_empty(one.numel() + 1)[1:].view(one.shape).copy_(one) for one in others],
    )
    yield (
        "given transposed memory",
        [one.mT.contiguous().mT if one.dim() > 1 else one for one in others],
    )


def _other_bits(right: Tensor) -> Tensor:
    if right.dtype is torch.bool:
        return ~right
    return (~bits(right)).view(right.dtype).view(right.shape).to(right.device)


def _wrong(right: list[Tensor]) -> Iterator[tuple[str, int, Tensor]]:
    for place, one in enumerate(right):
        yield "a dimension too many", place, one.new_empty((*one.shape, 1))
        other = torch.float64 if one.dtype is not torch.float64 else torch.float32
        yield f"{other} in place of {one.dtype}", place, one.new_empty(one.shape, dtype=other)
        if one.numel() > 1:
            yield "one element for all", place, one.new_empty(()).expand(one.shape)
