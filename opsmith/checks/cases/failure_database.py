"""Failing cases, kept beside what is built: the next run tries them first.

One file for each check and kernel, with the arguments as they lie in memory. It is dropped once the
case passes, or does not fit the declaration any more: where the author's cases alone are checked by
now, no sampled one does.
"""

from __future__ import annotations

import contextlib
import io
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from opsmith.checks.cases.case import FAILED_BEFORE, Case
from opsmith.checks.cases.rerun_command import file_of
from opsmith.checks.cases.subject import Subject
from opsmith.kernels.build.files import cache_folder, key_of, write_atomically
from opsmith.signature import bind

_FIELDS = ("values", "layouts", "same", "shift")


@dataclass(frozen=True)
class Stored:
    """A case that failed.

    Attributes:
        case: the arguments.
        family: the how-manieth family of cases of its check it was among.
    """

    case: Case
    family: int


def file_for(subject: Subject, check: str) -> Path:
    """Where the failing case of a check is kept."""
    operator = subject.operator
    key = key_of([operator.name, str(file_of(subject))])[:8]
    folder = cache_folder() / "failures" / f"{operator.name.replace('::', '-')}-{key}"
    return folder / f"{check}-{subject.kernel}.pt"


def store(path: Path, stored: Stored) -> None:
    """Keep a failing case; where the folder cannot be written, no check fails for it."""
    case = stored.case
    data: dict[str, Any] = {name: getattr(case, name) for name in _FIELDS}
    data |= {"values": dict(case.values), "layouts": dict(case.layouts)}
    # A case that is tried again is taken for a sampled one: the author's come again by themselves.
    data["sampled"] = case.origin in ("", FAILED_BEFORE)
    data |= {"arguments": case.make(), "family": stored.family, "schema": _schema(case)}
    buffer = io.BytesIO()
    torch.save(data, buffer)
    with contextlib.suppress(OSError):
        write_atomically(path, buffer.getvalue())


def stored_in(path: Path, subject: Subject) -> Stored | None:
    """The case in a file; `None` where there is none that fits the declaration."""
    signature = subject.signature
    try:
        data = torch.load(path)
        case = Case(signature, **{name: data[name] for name in _FIELDS}, origin=FAILED_BEFORE)
        if data["schema"] != _schema(case):
            return None
        if data["sampled"] and subject.operator.only_registered_cases:
            return None
        bind(signature, case.described())
        return Stored(case, data["family"])
    except Exception:  # anything may be in the file, and the unpickler raises anything
        return None


def beside(path: Path) -> Path:
    """Where the arguments are that an exported model is run with, after those in `path`."""
    return path.with_stem(f"{path.stem}-others")


def drop(path: Path) -> None:
    """Forget a case."""
    for one in (path, beside(path)):
        with contextlib.suppress(OSError):
            one.unlink()


def _schema(case: Case) -> str:
    return f"{case.signature.schema()} {case.signature.parameters!r}"
