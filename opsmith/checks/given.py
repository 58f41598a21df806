"""Cases that whoever runs the checks gives, in place of the author's and of samples."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from opsmith.checks.case import Case
from opsmith.checks.layouts import GIVEN
from opsmith.operators import Operator
from opsmith.operators.arguments import every_tensor_in
from opsmith.signature import bind

ORIGIN = "given"


def keep_given(cases: Sequence[Mapping[str, Any]], operator: Operator, path: Path) -> None:
    """Put arguments where the processes of a run find them.

    Args:
        cases: arguments by name.
        operator: which they are for.
        path: a file that is written.

    Raises:
        ArgumentError: some do not fit the declaration.
    """
    complete = [operator.arguments((), dict(arguments)) for arguments in cases]
    for arguments in complete:
        bind(operator.signature, Case(operator.signature, arguments).described())
    path.parent.mkdir(parents=True, exist_ok=True)
    torch.save(complete, path)


def given_cases(operator: Operator, path: str) -> list[Case]:
    """The cases that `keep_given` put there, as they lay in memory."""
    return [_case(operator, arguments) for arguments in torch.load(path)]


def _case(operator: Operator, arguments: Mapping[str, Any]) -> Case:
    tensors = [(name, value) for name, value in arguments.items() if isinstance(value, Tensor)]
    for number, (name, tensor) in enumerate(tensors):
        for other, second in tensors[number + 1 :]:
            if _memory(tensor) == _memory(second) and tensor.numel() and second.numel():
                shift = int(second.storage_offset() - tensor.storage_offset())
                same = (name, other) if shift >= 0 else (other, name)
                return Case(operator.signature, arguments, {}, ORIGIN, same, abs(shift))
    # Names of parameters, also where a tensor is one of a list.
    names = {name.partition("[")[0] for name, _ in every_tensor_in(arguments)}
    return Case(operator.signature, arguments, dict.fromkeys(names, GIVEN), ORIGIN)


def _memory(tensor: Tensor) -> int:
    return tensor.untyped_storage().data_ptr()
