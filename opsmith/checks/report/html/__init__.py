"""The report as an HTML page: a single file without external resources.

The most important parts (the failures, and the table of operators and runtimes) are HTML. The
details of a cell are drawn by ``page.js`` from the rows, which the page contains as JSON.
"""

from __future__ import annotations

import datetime
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from opsmith.checks.report.failure_codes import catalogue
from opsmith.checks.report.json_junit import plain
from opsmith.checks.report.rows import Results, Row

_FOLDER = Path(__file__).parent
#: The marks of statuses, from the most to the least important status.
_MARKS = {
    "failed": "✗",
    "cut short": "!",
    "passed in part": "◐",
    "passed": "✓",
    "not applicable": "–",
    "not run": "·",
}
_TITLES = {"passed": "✓", "failed": "✗", "incomplete": "!"}
#: Number of failures that are shown in full at first; the others open by a click.
_OPEN = 5
#: The column for rows of the author's own checks, and of checks that no longer exist.
_ELSEWHERE = "other"


@dataclass(frozen=True)
class Cell:
    """The summary of one kernel's checks of one runtime.

    Attributes:
        runtime: the column's name.
        status: the worst status of the rows; *passed in part* if some checks passed and others
            did not run.
        count: number of rows with this status.
    """

    runtime: str
    status: str
    mark: str
    count: int
    total: int

    @classmethod
    def of(cls, runtime: str, rows: list[Row]) -> Cell:
        """Create the cell of `rows`, which may be empty."""
        statuses: list[str] = [row.status for row in rows]
        if "not run" in statuses:
            statuses = ["passed in part" if one == "passed" else one for one in statuses]
        for status, mark in _MARKS.items():
            if status in statuses:
                return cls(runtime, status, mark, statuses.count(status), len(rows))
        return cls(runtime, "", "", 0, 0)

    @property
    def shown(self) -> str:
        """Return the number beside the mark, and the total if some checks did not run."""
        whole = self.status == "passed in part"
        return f"{self.count} of {self.total}" if whole else str(self.count)

    def describe(self) -> str:
        """Describe the cell in words, for screen readers."""
        status = "passed, others did not run" if self.status == "passed in part" else self.status
        return f"{self.runtime}: {self.count} of {self.total} {status}"


def render(report: Results, summaries: Mapping[str, str], runtimes: Mapping[str, str]) -> str:
    """Return the page's text.

    Args:
        report: the report to show.
        summaries: for each check by name, the property that must hold.
        runtimes: for each check by name, its column; in the order of the columns.
    """
    import torch
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    from opsmith.system.version import version

    environment = Environment(
        loader=FileSystemLoader(_FOLDER),
        undefined=StrictUndefined,
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    known = dict.fromkeys([*runtimes.values(), _ELSEWHERE])
    every = (*report.rows, *report.left_out)
    there = {runtimes.get(row.check, _ELSEWHERE) for row in every}
    columns = [runtime for runtime in known if runtime in there]
    lines = []
    for operator, kernel, rows in report.groups(left_out=True):
        cells = [
            Cell.of(column, [r for r in rows if runtimes.get(r.check, _ELSEWHERE) == column])
            for column in columns
        ]
        lines.append((operator, kernel, cells, any(cell.status == "failed" for cell in cells)))
    lines.sort(key=lambda line: not line[3])  # failures first, the rest as it ran
    codes = sorted({row.code for row in report.failures})
    return environment.get_template("page.html.j2").render(
        report=report,
        mark=_TITLES[report.outcome],
        gaps=list(report.gaps()),
        columns=columns,
        lines=lines,
        failures=report.failures,
        open=_OPEN,
        codes=codes,
        explanations={code: catalogue()[code] for code in codes if code in catalogue()},
        data=_embedded(report, summaries, runtimes),
        runtime_of=lambda row: runtimes.get(row.check, _ELSEWHERE),
        versions=f"opsmith {version()}, torch {torch.__version__}",
        date=datetime.datetime.now().astimezone().strftime("%Y-%m-%d %H:%M"),
    )


def _embedded(report: Results, summaries: Mapping[str, str], runtimes: Mapping[str, str]) -> str:
    """Return the rows as JSON that is safe inside a script element."""
    document = {
        "summaries": summaries,
        "rows": [_row(row, runtimes) for row in (*report.rows, *report.left_out)],
    }
    text = json.dumps(document, allow_nan=False, ensure_ascii=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")


def _row(row: Row, runtimes: Mapping[str, str]) -> dict[str, Any]:
    """Return a row's data for the page, without empty fields and with samples as lists."""
    own = plain(row)
    own["runtime"] = runtimes.get(row.check, _ELSEWHERE)
    own["seconds"] = round(row.seconds, 2)
    own["samples"] = [_short(sample.values()) for sample in own["samples"]]
    return {name: value for name, value in own.items() if value not in ("", [], ())}


def _short(values: Iterable[Any]) -> list[Any]:
    return [float(f"{value:.3g}") if isinstance(value, float) else value for value in values]
