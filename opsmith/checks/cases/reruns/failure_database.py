"""A database of failing cases in the build cache: the next run tries them first.

Each check and kernel has one file with the arguments in their memory layout. The file is dropped
once the case passes or no longer fits the declaration. If the operator accepts only registered
cases, a case fits that their functions still yield.
"""

from __future__ import annotations

import contextlib
import io
from dataclasses import dataclass
from pathlib import Path

import torch

from opsmith.checks.cases.case import FAILED_BEFORE, Case
from opsmith.checks.cases.reruns.registered_cases import author_cases
from opsmith.checks.cases.reruns.rerun_command import file_of
from opsmith.checks.cases.reruns.user_cases import PLAIN_FIELDS, plain_fields
from opsmith.checks.cases.subject import Subject
from opsmith.signature import bind
from opsmith.system.files import cache_folder, key_of, write_atomically


@dataclass(frozen=True)
class Stored:
    """A case that failed.

    Attributes:
        case: the arguments.
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
    data = {**plain_fields(case), "arguments": case.make(), "schema": _schema(case)}
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
        case = Case(signature, **{name: data[name] for name in PLAIN_FIELDS}, origin=FAILED_BEFORE)
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
