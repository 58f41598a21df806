"""Cases passed to a run of the checks, in place of registered and sampled cases."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from opsmith.checks.cases.case import FAILED_BEFORE, Case
from opsmith.checks.cases.layouts import GIVEN
from opsmith.operators import Operator
from opsmith.operators.core.arguments import every_tensor_in
from opsmith.signature import bind

ORIGIN = "given"
#: The fields of a case that files have, as they hold nothing but data.
PLAIN_FIELDS = ("values", "layouts", "same", "shift")


def keep_given(cases: Sequence[Mapping[str, Any]], operator: Operator, path: Path) -> None:
    """Check arguments against the declaration, and save them for the processes of a run.

    Args:
        cases: arguments by name, for each case.
        operator: the operator.
        path: the file to write.

    Raises:
        ArgumentError: a case does not fit the declaration.
    """
    complete = [_case(operator, operator.arguments((), dict(one))) for one in cases]
    for case in complete:
        bind(operator.signature, case.described())
    write_cases(complete, path)


def write_cases(cases: Sequence[Case], path: Path) -> None:
    """Write cases to a file."""
    # A check may judge a sampled case otherwise, also when it is tried again.
    origins = [FAILED_BEFORE if case.sampled else ORIGIN for case in cases]
    both = zip(map(plain_fields, cases), origins, strict=True)
    torch.save([{**own, "origin": origin} for own, origin in both], path)


def plain_fields(case: Case) -> dict[str, Any]:
    """Return what a file holds of a case; each mapping is a dictionary, as a file needs it."""
    fields = {name: getattr(case, name) for name in PLAIN_FIELDS}
    return {**fields, "values": dict(case.values), "layouts": dict(case.layouts)}


def given_cases(operator: Operator, path: str) -> list[Case]:
    """Read the cases from a file."""
    return [Case(operator.signature, **fields) for fields in torch.load(path)]


def _case(operator: Operator, arguments: Mapping[str, Any]) -> Case:
    tensors = [(name, value) for name, value in arguments.items() if isinstance(value, Tensor)]
    for number, (name, tensor) in enumerate(tensors):
        for other, second in tensors[number + 1 :]:
            if _memory(tensor) == _memory(second) and tensor.numel() and second.numel():
                shift = int(second.storage_offset() - tensor.storage_offset())
                same = (name, other) if shift >= 0 else (other, name)
                return Case(operator.signature, arguments, {}, ORIGIN, same, abs(shift))
    # The layout belongs to the parameter, also for a tensor in a list.
    names = {name.partition("[")[0] for name, _ in every_tensor_in(arguments)}
    return Case(operator.signature, arguments, dict.fromkeys(names, GIVEN), ORIGIN)


def _memory(tensor: Tensor) -> int:
    return tensor.untyped_storage().data_ptr()
