"""The page on environment variables names every one that the code reads, and no other."""

import re
from pathlib import Path

from opsmith.system.processes.sandbox.policy import ENVIRONMENT

REPOSITORY = Path(__file__).parents[2]
PAGE = REPOSITORY / "docs" / "reference" / "environment.md"
READ = re.compile(
    r"""environ(?:\.get|\.setdefault|\.pop)?[\[(]\s*["'](\w+)["']"""
    r"""|["'](\w+)["']\s+(?:not\s+)?in\s+os\.environ"""
    r"""|getenv\(\s*["'](\w+)["']"""
)
# Temporary files and what Python itself reads are nobody's setting.
WRITTEN_ONLY = {"PYTHONPATH", "TMPDIR"}


def read_by_the_code() -> set[str]:
    found: set[str] = set()
    for path in (REPOSITORY / "opsmith").rglob("*"):
        if path.suffix in (".py", ".h", ".hpp", ".cpp", ".cu", ".j2"):
            for names in READ.findall(path.read_text()):
                found.add(next(name for name in names if name))
    return found


def test_every_variable_that_is_read_is_on_the_page():
    listed = set(re.findall(r"^\| `(\w+)` \|", PAGE.read_text(), re.MULTILINE))
    assert listed == read_by_the_code() - WRITTEN_ONLY


def test_no_line_reads_a_variable_whose_name_cannot_be_seen():
    # Else the test above would miss it.
    for path in (REPOSITORY / "opsmith").rglob("*.py"):
        for line in path.read_text().splitlines():
            # The judge passes on what a tuple lists, which the next test compares.
            if "for name in ENVIRONMENT" in line:
                continue
            if re.search(r"environ(?:\.get\(|\[)|getenv\(", line):
                assert READ.search(line), f"{path}: {line.strip()}"


def test_what_a_candidate_sees_is_on_the_page():
    (section,) = re.findall(r"no others: (.*?)\. `PYTHONPATH`", PAGE.read_text())
    assert tuple(re.findall(r"`(\w+)`", section)) == ENVIRONMENT
