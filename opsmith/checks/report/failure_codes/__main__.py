"""Print ``docs/reference/failures.md``: the whole catalogue as one page."""

from __future__ import annotations

import re

from opsmith.checks.report.failure_codes import _PAGES, catalogue, page


def document() -> str:
    """Return the text of the page."""
    rows = [
        f"| [`{one.code}`](#{one.code.lower()}) | {one.title} |" for one in catalogue().values()
    ]
    table = "\n".join(["| code | what is wrong |", "|---|---|", *rows])
    pages = [re.sub(r"^(#+ )", r"#\1", page(name), flags=re.MULTILINE).strip() for name in _PAGES]
    return "\n\n".join([page("head").strip(), table, *pages]) + "\n"


if __name__ == "__main__":
    print(document(), end="")
