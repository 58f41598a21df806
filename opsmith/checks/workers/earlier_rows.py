"""Tell which rows of the last run still hold, since nothing that they rest on has changed.

Every row rests on the user's modules. A row of the kernel alone rests on no other kernel, and on no
function that is registered as a backward; any other row may rest on every kernel.
"""

from __future__ import annotations

import ast
import contextlib
import inspect
from collections.abc import Iterable, Sequence
from dataclasses import replace
from types import CodeType
from typing import Any

from opsmith.checks.cases.subject import Subject, subjects_of
from opsmith.checks.protocol import Check, all_checks
from opsmith.checks.report.json_junit import plain
from opsmith.checks.report.rows import FROM_BEFORE, Row
from opsmith.errors import OpsmithError
from opsmith.kernels import KernelSource
from opsmith.operators import Operator
from opsmith.operators.core.source_location import code_of
from opsmith.sources.importing import user_files
from opsmith.system.files import digest, key_of

Kept = tuple[str, str, str]
"""Names the operator, the kernel and the check of a row."""


class EarlierRows:
    """The rows of the last run of the same checks.

    Args:
        kept: what `keep` returned for the last run.
    """

    def __init__(self, operators: Sequence[Operator], kept: Iterable[Any] = ()) -> None:
        self._operators = operators
        self._rows: dict[Kept, tuple[Row, str]] = {}
        for one, rests_on in kept:
            row = Row.revive(one)
            self._rows[row.operator, row.kernel, row.check] = row, rests_on
        self._digests = self._digests_of_files()

    def failed(self, check: Check, subject: Subject) -> bool:
        """Return whether a check failed in the last run."""
        row, _ = self._rows.get(_name(check, subject), (None, ""))
        return row is not None and row.status == "failed"

    def holding(self, check: Check, subject: Subject) -> Row | None:
        """Return the row of a check that passed in the last run, if it still holds."""
        row, rests_on = self._rows.get(_name(check, subject), (None, ""))
        if row is None or row.status not in ("passed", "not applicable"):
            return None
        if not rests_on or self._rests_on(check, subject) != rests_on:
            return None
        notes = tuple(note for note in row.notes if note != FROM_BEFORE)
        where = subject.implementation.where
        return replace(row, seconds=0.0, timings={}, where=where, notes=(FROM_BEFORE, *notes))

    def keep(self, rows: Sequence[Row]) -> list[Any]:
        """Return the rows of this run for the next one, as JSON data."""
        self._digests = self._digests_of_files()  # a build tells which headers a kernel includes
        checks = {one.name: one for one in all_checks()}
        subjects = {
            (one.name, subject.kernel): subject
            for one in self._operators
            for subject in subjects_of(one)
        }
        return [
            (plain(row), self._rests_on(checks[row.check], subjects[row.operator, row.kernel]))
            for row in rows
            if (row.operator, row.kernel) in subjects
        ]

    def _rests_on(self, check: Check, subject: Subject) -> str:
        """Return a digest of the files that a row rests on; empty where they are not known."""
        if subject.adopted:
            return ""
        modules, without_backwards, kernels = self._digests
        # A row of gradients may call the kernel of a backward alone.
        if check.runtime != "kernel alone" or "gradient" in check.needs:
            own = list(kernels.values())
        else:
            own = [kernels.get((subject.operator.name, subject.kernel), "Python")]
            modules = without_backwards
        return key_of([modules, own]) if all(own) else ""

    def _digests_of_files(self) -> tuple[str, str, dict[tuple[str, str], str]]:
        """Return digests: of modules, of these without backwards, of each kernel's files."""
        modules = {str(path): path.read_text(errors="replace") for path in user_files()}
        without = dict(modules)
        for operator in self._operators:
            for function in (operator.rule.backward, operator.rule.setup_context):
                code = code_of(function)
                if code is not None and code.co_filename in without:
                    without[code.co_filename] = _without(code, without[code.co_filename])
        kernels = {
            (one.name, device): _digest(kernel.source)
            for one in self._operators
            for device, kernel in one.kernels.items()
            if kernel.source is not None
        }
        return key_of(modules), key_of(without), kernels


def _name(check: Check, subject: Subject) -> Kept:
    return subject.operator.name, subject.kernel, check.name


def _digest(source: KernelSource) -> str:
    """Return a digest of a kernel's files; empty if no build told which files it includes."""
    with contextlib.suppress(OpsmithError):
        if source.built() is not None:
            return key_of([[str(path), digest(path)] for path in source.files()])
    return ""


def _without(code: CodeType, text: str) -> str:
    """Return a module's text without the lines of a function that nothing in the module calls."""
    lines = text.splitlines()
    own, first = inspect.getsourcelines(code)
    inside = range(first, first + len(own))
    for node in ast.walk(ast.parse(text)):
        if not isinstance(node, ast.Name) or node.id != code.co_name or node.lineno in inside:
            continue
        if "register_" not in lines[node.lineno - 1]:
            return text
    return "\n".join("" if number in inside else line for number, line in enumerate(lines, 1))
