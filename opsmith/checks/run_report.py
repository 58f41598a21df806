"""The report of a run: its rows, and the formats that show it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from opsmith.checks.report.rows import Results


class Report(Results):
    """The rows of one run; see `Results`."""

    def __repr__(self) -> str:
        return f"<Report: {self.summary()}>"

    def __str__(self) -> str:
        """Return the report on one screen: what passed by name, failures in full."""
        from opsmith.checks.report.table import on_a_screen, text_of

        return text_of(on_a_screen(self))

    def table(self) -> Any:
        """Return a renderable for rich that fits 80 columns: every row, then failures in full."""
        from rich.console import Group

        from opsmith.checks.report.table import LEGEND, Table, ending

        parts: list[Any] = []
        table = Table(parts.append, {row.check for row in self.rows})
        for row in self.rows:
            table.add(row)
        table.flush()
        return Group(*parts, *ending(self, legend=LEGEND))

    def _repr_html_(self) -> str:
        """Return what a notebook shows: the report on one screen, in colours."""
        from opsmith.checks.report.table import html_of, on_a_screen

        return html_of(on_a_screen(self))

    def to_json(self) -> str:
        """Return the report as JSON text; `json_junit.SCHEMA_FILE` holds its schema."""
        from opsmith.checks.report.json_junit import to_json

        return to_json(self)

    def to_junit(self, path: str | Path | None = None) -> str:
        """Return the report as JUnit XML, for continuous integration.

        Args:
            path: a file to write the document to as well.
        """
        from opsmith.checks.report.json_junit import to_junit
        from opsmith.system.files import write_output

        text = to_junit(self)
        if path is not None:
            write_output(Path(path), text)
        return text

    def to_html(self, path: str | Path | None = None) -> str:
        """Return the report as one self-contained HTML page.

        Args:
            path: a file to write the page to as well.
        """
        from opsmith.checks.protocol import all_checks
        from opsmith.checks.report.html import render
        from opsmith.system.files import write_output

        summaries = {check.name: check.summary for check in all_checks()}
        text = render(self, summaries, {check.name: check.runtime for check in all_checks()})
        if path is not None:
            write_output(Path(path), text)
        return text
