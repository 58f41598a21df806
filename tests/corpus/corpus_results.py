"""Keep what became of each operator of the corpus with each seed: a line of text for each.

The first line names the rows; in the others a letter stands for the status of each row.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from datetime import date
from pathlib import Path
from typing import Any

FILE = Path(__file__).parent / "results.txt"
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
    """

    operator: str
    seed: int
    rows: dict[str, str]
    codes: dict[str, str] = field(default_factory=dict)
    examples: int = 60
    load: int = 0
    seconds: int = 0
    day: str = ""


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
    return Result(
        label, seed, rows, codes, examples, load, round(seconds), date.today().isoformat()
    )


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
    operator, seed, day, examples, load, seconds, letters, *codes = line.split()
    rows = {
        name: _STATUS[letter]
        for name, letter in zip(names, letters, strict=False)
        if letter != _ABSENT
    }
    found = dict(one.split("=") for one in codes)
    return Result(operator, int(seed), rows, found, int(examples), int(load), int(seconds), day)


def add(result: Result, path: Path | None = None) -> None:
    """Write a result; the rows that an earlier run had and this one has not are kept."""
    known = {(one.operator, one.seed): one for one in read(path)}
    before = known.get((result.operator, result.seed))
    if before is not None:
        codes = {name: code for name, code in before.codes.items() if name not in result.rows}
        result = replace(
            result, rows={**before.rows, **result.rows}, codes={**codes, **result.codes}
        )
    known[result.operator, result.seed] = result
    write(known.values(), path)


def write(results: Iterable[Result], path: Path | None = None) -> None:
    """Write results in the order of operators and seeds."""
    path = path or FILE
    from opsmith.checks import all_checks

    kept = sorted(results, key=lambda one: (one.operator, one.seed))
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
    fields = [one.operator, one.seed, one.day or "-", *numbers, letters, *codes]
    return " ".join(map(str, fields))


def said(one: Result) -> str:
    """Return a line on what became of an operator."""
    counts = Counter(one.rows.values())
    words = ", ".join(f"{counts[status]} {status}" for status in LETTERS if counts[status])
    return f"{one.operator} seed {one.seed}: {words}; {one.seconds} s, load {one.load}"
