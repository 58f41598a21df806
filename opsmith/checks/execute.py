"""One check of one kernel, from start to row."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from opsmith.checks.protocol import Check, Failure, Inapplicable
from opsmith.checks.report import Row, Status, repeat_command
from opsmith.checks.subject import Subject
from opsmith.checks.trial import Announce, Settings, Trial
from opsmith.errors import OpsmithError


def execute(
    check: Check,
    subject: Subject,
    settings: Settings,
    announce: Announce,
    crashed: Mapping[str, str],
) -> Row:
    """Run a check in this process.

    Args:
        check: what to run.
        subject: on what.
        settings: how thoroughly.
        announce: told of each case before it runs.
        crashed: cases that took a process down before, by their keys.
    """
    started = time.monotonic()
    trial = Trial(subject, check.name, settings, announce, crashed)
    status: Status = "passed"
    message, case = "", ""
    try:
        trial.need(not subject.missing, subject.missing)
        _build(check, subject)
        with _without_traces():
            check.run(trial)
        if check.samples and not trial.count:
            raise Failure(_no_case(trial))
    except Inapplicable as reason:
        status, message = "not applicable", str(reason)
    except Failure as failure:
        status, message = "failed", str(failure)
        case = failure.case.describe() if failure.case is not None else ""
        trial.blame = failure.blame or trial.blame
    except Exception as error:
        status, message = "failed", trial.raised(error)
    if status == "passed" and trial.refused > trial.count:
        trial.notes.append(f"the reference refused {trial.refused} samples: {trial.refusal}")
    return Row(
        operator=subject.operator.name,
        kernel=subject.kernel,
        check=check.name,
        status=status,
        cases=trial.count,
        error=trial.error,
        seconds=time.monotonic() - started,
        message=message,
        case=case,
        notes=tuple(dict.fromkeys(trial.notes)),
        command=command_of(subject, check.name, settings.seed),
        where=subject.implementation.where,
        blame=trial.blame,
    )


@contextmanager
def _without_traces() -> Iterator[None]:
    """Keep the compiler's trace, thousands of empty lines, out of what pytest shows."""
    logger = logging.getLogger("torch.__trace")

    def wanted(record: logging.LogRecord) -> bool:
        return "TORCH_TRACE" in os.environ

    logger.addFilter(wanted)
    try:
        yield
    finally:
        logger.removeFilter(wanted)


def _build(check: Check, subject: Subject) -> None:
    if check.name == "build":
        return
    try:
        subject.operator.build(subject.device)
    except OpsmithError as error:
        raise Inapplicable(f"the kernel does not build: {str(error).splitlines()[0]}") from error


def _no_case(trial: Trial) -> str:
    hint = "Say what arguments may be (Index, Between, Extent), or give cases: register_cases."
    if trial.refused:
        return f"the reference refuses every sampled case, the last with: {trial.refusal}\n{hint}"
    if trial.operator.only_registered_cases:
        return "the functions given to register_cases(only=True) yield no case for this"
    return f"no arguments could be sampled that fit the declaration.\n{hint}"


def file_of(subject: Subject) -> Path | None:
    """The file that declares the operator; `None` for a notebook."""
    code: Callable[..., object] | None = getattr(subject.operator.reference, "__code__", None)
    path = Path(getattr(code, "co_filename", ""))
    return path if path.is_file() else None


def command_of(subject: Subject, check: str, seed: int) -> str:
    """The command line that repeats a check; empty for a notebook."""
    path = file_of(subject)
    if path is None:
        return ""
    relative = os.path.relpath(path)
    return repeat_command(str(path) if relative.startswith("..") else relative, check, seed)
