"""The report as a page: one file, nothing fetched from anywhere."""

from __future__ import annotations

import datetime
import math
from pathlib import Path
from typing import TYPE_CHECKING

from opsmith.checks.protocol import all_checks
from opsmith.checks.report import show_error

if TYPE_CHECKING:
    from opsmith.checks.report import Report

_TEMPLATE = Path(__file__).with_name("report.html.j2")


def bar(error: float | None) -> float:
    """The length of an error's bar in per cent; the tolerance is at 80.

    The scale is logarithmic from a millionth of the tolerance on: what is worth seeing is how many
    digits are left.
    """
    if error is None or error <= 0:
        return 0.0
    if math.isinf(error):
        return 100.0
    return max(1.0, min(100.0, 80.0 * (1 + math.log10(error) / 6)))


def render(report: Report) -> str:
    """The page's text."""
    import torch
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    from opsmith.kernels.version import version

    environment = Environment(
        loader=FileSystemLoader(_TEMPLATE.parent),
        undefined=StrictUndefined,
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["bar"] = bar
    environment.filters["error"] = show_error
    return environment.get_template(_TEMPLATE.name).render(
        report=report,
        summaries={check.name: check.summary for check in all_checks()},
        versions=f"opsmith {version()}, torch {torch.__version__}",
        date=datetime.datetime.now().astimezone().strftime("%Y-%m-%d %H:%M"),
    )
