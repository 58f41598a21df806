"""Keep what became of each operator of the corpus with each seed: a line of text for each.

The first line names the rows; in the others a letter stands for the status of each row. A line
belongs to one version of the checks: rows that run again under a later one leave the older line.
"""

from __future__ import annotations

import functools
import hashlib
import os
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from datetime import date
from pathlib import Path
from typing import Any

FILE = Path(__file__).parent / "results.txt"
#: The folder of the checks, and what in it only shows what they found.
_CHECKS = Path(__file__).parents[2] / "opsmith" / "checks"
_SHOWN = ("report", "reproduction")
#: The letter of each status.
LETTERS = {
    "passed": ".",
    "failed": "F",
    "cut short": "c",
    "not applicable": "-",
    "not run": "?",
}
_STATUS = {letter: status for status, letter in LETTERS.items()}
#: Stands for a row that has not run yet.
_ABSENT = "_"


@dataclass(frozen=True)
class Result:
    """What became of one operator with one seed.

    Attributes:
        operator: ``kernel/aten::add.Tensor``.
        seed: the seed of the run.
        rows: the status of each row that ran.
        codes: the code of each row that failed.
        examples: how many cases a row drew.
        load: how many processes wanted to run on this machine, on average over the last minute.
        seconds: how long it took.
        day: the day of the run.
        checks: a digest of the checks that ran; empty where nobody kept it.
    """

    operator: str
    seed: int
    rows: dict[str, str]
    codes: dict[str, str] = field(default_factory=dict)
    examples: int = 60
    load: int = 0
    seconds: int = 0
    day: str = ""
    checks: str = ""


@functools.cache
def digest() -> str:
    """Return a digest of the sources that decide what a row says."""
    found = hashlib.sha256()
    for file in sorted(_CHECKS.rglob("*")):
        part = file.relative_to(_CHECKS)
        if file.suffix in (".py", ".cpp", ".h", ".j2") and part.parts[0] not in _SHOWN:
            found.update(f"{part}\0".encode() + file.read_bytes())
    return found.hexdigest()[:8]


def of_rows(label: str, seed: int, given: Iterable[Any], examples: int, seconds: float) -> Result:
    """Return the result of the rows of an operator."""
    rows: dict[str, str] = {}
    codes: dict[str, str] = {}
    for row in given:
        # The rows of a second kernel of the operator count with the first one's.
        if row.check not in rows or _is_worse(row.status, rows[row.check]):
            rows[row.check] = row.status
        if row.status == "failed":
            codes[row.check] = row.code
    load = round(os.getloadavg()[0])
    day = date.today().isoformat()
    return Result(label, seed, rows, codes, examples, load, round(seconds), day, digest())


def refused(label: str, seed: int, examples: int, codes: dict[str, str]) -> Result:
    """Return the result of an operator that cannot be declared."""
    return Result(label, seed, {}, codes, examples, day=date.today().isoformat(), checks=digest())


def _is_worse(status: str, other: str) -> bool:
    ranks = {"failed": 0, "cut short": 1, "passed": 2, "not applicable": 3, "not run": 4}
    return ranks[status] < ranks[other]


def read(path: Path | None = None) -> list[Result]:
    """Return every result."""
    path = path or FILE
    if not path.is_file():
        return []
    first, *lines = path.read_text().splitlines()
    names = first.removeprefix("#").split()
    return [_read(names, line) for line in lines]


def _read(names: list[str], line: str) -> Result:
    operator, seed, day, checks, examples, load, seconds, letters, *codes = line.split()
    rows = {
        name: _STATUS[letter]
        for name, letter in zip(names, letters, strict=False)
        if letter != _ABSENT
    }
    found = dict(one.split("=") for one in codes)
    numbers = int(examples), int(load), int(seconds)
    return Result(operator, int(seed), rows, found, *numbers, day, checks.strip("-"))


def add(result: Result, path: Path | None = None) -> None:
    """Write a result; rows that earlier runs had and this one has not are kept."""
    kept = []
    for one in read(path):
        if (one.operator, one.seed) == (result.operator, result.seed):
            one = _without(one, result.rows)
            if one.checks == result.checks:
                rows, codes = {**one.rows, **result.rows}, {**one.codes, **result.codes}
                result = replace(result, rows=rows, codes=codes)
            if one.checks == result.checks or not one.rows:
                continue
        kept.append(one)
    write([*kept, result], path)


def _without(one: Result, rows: Iterable[str]) -> Result:
    """Return a result without some of its rows, and without a refusal to declare the operator."""
    left = {name: status for name, status in one.rows.items() if name not in rows}
    codes = {name: code for name, code in one.codes.items() if name in left}
    return replace(one, rows=left, codes=codes)


def write(results: Iterable[Result], path: Path | None = None) -> None:
    """Write results in the order of operators and seeds."""
    path = path or FILE
    from opsmith.checks import all_checks

    kept = sorted(results, key=lambda one: (one.operator, one.seed, one.day, one.checks))
    used = {name for one in kept for name in one.rows}
    names = [one.name for one in all_checks() if one.name in used]
    lines = ["# " + " ".join(names), *(_line(names, one) for one in kept)]
    whole = path.with_suffix(".new")
    whole.write_text("\n".join(lines) + "\n")
    whole.replace(path)


def _line(names: list[str], one: Result) -> str:
    marks = (LETTERS[one.rows[name]] if name in one.rows else _ABSENT for name in names)
    letters = "".join(marks) or _ABSENT
    codes = [f"{name}={code}" for name, code in sorted(one.codes.items())]
    numbers = (one.examples, one.load, one.seconds)
    fields = [one.operator, one.seed, one.day or "-", one.checks or "-", *numbers, letters, *codes]
    return " ".join(map(str, fields))


def said(one: Result) -> str:
    """Return a line on what became of an operator."""
    counts = Counter(one.rows.values())
    words = ", ".join(f"{counts[status]} {status}" for status in LETTERS if counts[status])
    return f"{one.operator} seed {one.seed}: {words}; {one.seconds} s, load {one.load}"
