"""Reports for programs: JSON with a published schema, and JUnit XML."""

from __future__ import annotations

import json
import math
import platform
import re
from dataclasses import asdict
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from opsmith.checks.report.rows import UNTRIED, Results, Row

SCHEMA = "opsmith.report/1"
"""The name and version of the format of `to_json`."""

SCHEMA_FILE = Path(__file__).parent / "schema" / "report-1.json"
"""The JSON Schema of this format."""

#: Characters that XML 1.0 does not allow.
_UNSPEAKABLE = re.compile(r"[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def to_json(report: Results) -> str:
    """Return the report as JSON text that conforms to `SCHEMA_FILE`."""
    import torch

    from opsmith.system.version import version

    document = {
        "schema": SCHEMA,
        "ok": report.ok,
        "outcome": report.outcome,
        "seed": report.seed,
        "opsmith": version(),
        "torch": torch.__version__,
        "python": platform.python_version(),
        "without_kernel": report.without_kernel,
        "rows": [plain(row) for row in report.rows],
        "left_out": [
            {"operator": row.operator, "kernel": row.kernel, "check": row.check}
            for row in report.left_out
        ],
    }
    return json.dumps(document, indent=2, allow_nan=False)


def plain(row: Row) -> dict[str, Any]:
    """Convert a row to JSON data; an infinite error becomes ``"infinite"``."""
    own = asdict(row)
    for one in (own, *own["samples"]):
        if one["error"] is not None and not math.isfinite(one["error"]):
            one["error"] = "infinite"
    return own


def to_junit(report: Results) -> str:
    """Return the report as JUnit XML: a suite for each kernel, a test case for each check.

    A check that was left out is skipped. An operator without any completed check has a suite with
    an error, since skipped tests alone look like success.
    """
    root = ElementTree.Element("testsuites", name="opsmith")
    for operator, reason in report.unchecked.items():
        suite = ElementTree.SubElement(
            root, "testsuite", name=operator, tests="1", failures="0", errors="1", skipped="0"
        )
        test = ElementTree.SubElement(suite, "testcase", classname=operator, name="checked")
        what = _speakable(reason)
        ElementTree.SubElement(test, "error", type=what.partition(":")[0], message=what)
    for operator, kernel, rows in report.groups(left_out=True):
        counts = _counts(rows, report.allow_cut_short)
        suite = ElementTree.SubElement(root, "testsuite", counts, name=f"{operator} ({kernel})")
        if operator in report.without_kernel:
            properties = ElementTree.SubElement(suite, "properties")
            ElementTree.SubElement(properties, "property", name="kernel", value="none")
        for row in rows:
            test = ElementTree.SubElement(
                suite,
                "testcase",
                classname=f"{operator}.{kernel}",
                name=row.check,
                time=f"{row.seconds:.3f}",
            )
            first = _speakable(row.message.partition("\n")[0])
            if row.status == "failed":
                failure = ElementTree.SubElement(test, "failure", type=row.code, message=first)
                failure.text = _speakable(row.explain())
            elif row.status == "cut short" and not report.allow_cut_short:
                error = ElementTree.SubElement(test, "error", type=row.status, message=first)
                error.text = _speakable(row.explain())
            elif row.status in (*UNTRIED, "cut short"):
                ElementTree.SubElement(test, "skipped", message=first)
            if row.notes:
                ElementTree.SubElement(test, "system-out").text = _speakable("\n".join(row.notes))
    for name in ("tests", "failures", "errors", "skipped"):
        root.set(name, str(sum(int(suite.get(name, 0)) for suite in root)))
    root.set("time", f"{sum(row.seconds for row in report.rows):.3f}")
    ElementTree.indent(root)
    return ElementTree.tostring(root, encoding="unicode", xml_declaration=True) + "\n"


def _counts(rows: list[Row], allow_cut_short: bool) -> dict[str, str]:
    cut_short = sum(row.status == "cut short" for row in rows)
    untried = sum(row.status in UNTRIED for row in rows)
    return {
        "tests": str(len(rows)),
        "failures": str(sum(row.status == "failed" for row in rows)),
        "errors": str(0 if allow_cut_short else cut_short),
        "skipped": str(untried + (cut_short if allow_cut_short else 0)),
        "time": f"{sum(row.seconds for row in rows):.3f}",
    }


def _speakable(text: str) -> str:
    """Replace characters that XML does not allow, which a compiler may have printed."""
    return _UNSPEAKABLE.sub("�", text)
