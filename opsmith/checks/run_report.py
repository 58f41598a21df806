"""A report: the rows of a run, and the forms in which it is shown."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from opsmith.checks.report.rows import Results


class Report(Results):
    """Every row of one run; see `Results`."""

    def table(self) -> Any:
        """A renderable for rich that fits 80 columns: every row, then failures in full."""
        from rich.console import Group

        from opsmith.checks.report.table import Table, ending

        parts: list[Any] = []
        table = Table(parts.append, {row.check for row in self.rows})
        for row in self.rows:
            table.add(row)
        table.flush()
        return Group(*parts, *ending(self))

    def to_json(self) -> str:
        """The report as JSON text; `opsmith.checks.report.json_junit.SCHEMA_FILE` describes it."""
        from opsmith.checks.report.json_junit import to_json

        return to_json(self)

    def to_junit(self, path: str | Path | None = None) -> str:
        """The report as JUnit's XML, for continuous integration.

        Args:
            path: also written there.

        Returns:
            The document's text.
        """
        from opsmith.checks.report.json_junit import to_junit

        text = to_junit(self)
        if path is not None:
            Path(path).write_text(text, encoding="utf-8")
        return text

    def to_html(self, path: str | Path | None = None) -> str:
        """The report as one self-contained page.

        Args:
            path: also written there.

        Returns:
            The page's text.
        """
        from opsmith.checks.protocol import all_checks
        from opsmith.checks.report.html import render

        text = render(self, all_checks())
        if path is not None:
            Path(path).write_text(text, encoding="utf-8")
        return text
