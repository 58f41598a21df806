"""Draw what the rows draw, without a kernel, an export or a compiler."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

from opsmith import checks
from opsmith.checks import protocol, runner
from opsmith.checks.cases.case import Case
from opsmith.checks.catalogue import cuda, exact, exact_emulated, memory_safety, targets
from opsmith.checks.exports.export_comparison import ModelExports
from opsmith.checks.trial.case_source import CaseSource
from opsmith.checks.trial.trial import Trial

#: Rows that draw no case, or make their cases otherwise than by `Trial.each`.
OTHERS = ("build", "narrow-index", "nvcc", "triton-interpreter")
#: Cases by operator, row and cohort.
Drawn = dict[tuple[str, str, str], list[Case]]


def rows() -> list[str]:
    """Return the rows that draw cases."""
    return [one.name for one in checks.all_checks() if not one.flag and one.name not in OTHERS]


def drawn(operators: Any, monkeypatch: Any, select: list[str]) -> tuple[Drawn, Any]:
    """Return the cases that rows draw and the reference takes, and the report."""
    found: Drawn = defaultdict(list)
    each, each_pair, begin = Trial.each, CaseSource.each_pair, Trial.__init__
    trials: dict[int, Trial] = {}

    def note(trial: Trial, case: Case) -> None:
        trial.accept(case)
        cohort = "registered" if case.origin else trial.counts.cohort
        found[trial.operator.name, trial.name, cohort].append(case)

    def noted(trial: Trial, body: Any, **wanted: Any) -> None:
        each(trial, lambda case: note(trial, case), **wanted)

    def begun(trial: Trial, *given: Any, **more: Any) -> None:
        begin(trial, *given, **more)
        trials[id(trial.cases)] = trial

    def noted_pair(source: CaseSource, body: Any, **wanted: Any) -> bool:
        trial = trials[id(source)]
        return each_pair(source, lambda *pair: [note(trial, case) for case in pair], **wanted)

    @contextmanager
    def loaded(*_: Any) -> Iterator[Any]:
        yield MagicMock()

    def compared(trial: Trial, *_: Any, **__: Any) -> Any:
        return SimpleNamespace(
            dtype=trial.subject.favourite, elements=1, undecided=0, cases=0, check=None
        )

    monkeypatch.setattr(Trial, "__init__", begun)
    monkeypatch.setattr(Trial, "each", noted)
    monkeypatch.setattr(CaseSource, "each_pair", noted_pair)
    build = replace(protocol.selected(["build"])[0], run=lambda _: None)
    monkeypatch.setitem(protocol._CHECKS, "build", build)
    monkeypatch.setattr(runner, "_build", lambda *_: None)
    monkeypatch.setattr(memory_safety, "build_for", lambda *_: None)
    monkeypatch.setattr(exact, "prepare", compared)
    monkeypatch.setattr(exact_emulated, "prepare", compared, raising=False)
    monkeypatch.setattr(cuda, "build_emulated", lambda trial: (None, trial.subject.dtypes))
    monkeypatch.setattr(targets, "_loaded", loaded)
    monkeypatch.setattr(ModelExports, "finish", lambda _: None)
    report = checks.run(operators, select=select, isolate=False, seconds=600)
    return found, report
