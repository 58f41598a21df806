"""Cases in files: those that failed, which the next run tries first, and those given to a run.

Failing cases are in the build cache. Each check and kernel has one file with the arguments in their
memory layout. The file is dropped once the case passes or no longer fits the declaration. If the
operator accepts only registered cases, a case fits that their functions still yield. Given cases
take the place of registered and sampled ones.
"""

from __future__ import annotations

import contextlib
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from opsmith.checks.cases.case import FAILED_BEFORE, Case
from opsmith.checks.cases.layouts import GIVEN
from opsmith.checks.cases.reruns.registered_cases import author_cases
from opsmith.checks.cases.reruns.rerun_command import file_of
from opsmith.checks.cases.subject import Subject
from opsmith.operators import Operator
from opsmith.operators.core.arguments import every_tensor_in
from opsmith.signature import bind
from opsmith.system.files import cache_folder, key_of, write_atomically

ORIGIN = "given"
#: The fields of a case that files have, as they hold nothing but data.
_PLAIN_FIELDS = ("values", "layouts", "same", "shift")


@dataclass(frozen=True)
class Stored:
    """A case that failed.

    Attributes:
        family: index of the call of `Trial.each` that the case belongs to.
        seed: the seed of the run in which the case failed.
    """

    case: Case
    family: int
    seed: int = 0


def file_for(subject: Subject, check: str) -> Path:
    """Return the file for the failing case of a check."""
    operator = subject.operator
    key = key_of([operator.name, str(file_of(subject))])[:8]
    folder = cache_folder() / "failures" / f"{operator.name.replace('::', '-')}-{key}"
    return folder / f"{check}-{subject.kernel}.pt"


def store(path: Path, stored: Stored) -> None:
    """Save a failing case; do nothing if the folder cannot be written."""
    case = stored.case
    data = {**_plain_fields(case), "arguments": case.make(), "schema": _schema(case)}
    data |= {"family": stored.family, "seed": stored.seed}
    buffer = io.BytesIO()
    torch.save(data, buffer)
    with contextlib.suppress(OSError):
        write_atomically(path, buffer.getvalue())


def stored_in(path: Path, subject: Subject) -> Stored | None:
    """Return the case in a file; `None` if the file holds no case that fits the declaration."""
    signature = subject.signature
    try:
        data = torch.load(path)
        case = Case(signature, **{name: data[name] for name in _PLAIN_FIELDS}, origin=FAILED_BEFORE)
        if data["schema"] != _schema(case):
            return None
        if subject.operator.only_registered_cases:
            own = author_cases(subject.operator, case.dtype, data["seed"], (0, 1, 2))
            if case.with_layouts({}).digest not in {one.digest for one in own}:
                return None
        bind(signature, case.described())
        return Stored(case, data["family"], data["seed"])
    except Exception:  # anything may be in the file, and the unpickler raises anything
        return None


def beside(path: Path) -> Path:
    """Return the file for the arguments of an exported model's run, beside those of the export."""
    return path.with_stem(f"{path.stem}-others")


def drop(path: Path) -> None:
    """Delete the files of a case."""
    for one in (path, beside(path)):
        with contextlib.suppress(OSError):
            one.unlink()


def _schema(case: Case) -> str:
    return f"{case.signature.schema()} {case.signature.parameters!r}"


def keep_given(cases: Sequence[Mapping[str, Any]], operator: Operator, path: Path) -> None:
    """Check arguments against the declaration, and save them for the processes of a run.

    Args:
        cases: arguments by name, for each case.
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
    both = zip(map(_plain_fields, cases), origins, strict=True)
    torch.save([{**own, "origin": origin} for own, origin in both], path)


def _plain_fields(case: Case) -> dict[str, Any]:
    """Return what a file holds of a case; each mapping is a dictionary, as a file needs it."""
    fields = {name: getattr(case, name) for name in _PLAIN_FIELDS}
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
