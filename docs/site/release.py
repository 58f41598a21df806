"""Give a release the repository's address: absolute links for PyPI, which shows the README alone.

Run by the workflow that publishes, before the package is built::

    python docs/site/release.py OWNER/NAME v0.1.0
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

_ROOT = Path(__file__).parents[2]
_LINK = re.compile(r"(!?)\[([^\]]*)\]\((?!https?:|#)([^)\s]+)\)")
_IN_CLONE = re.compile(r'(?<=pip install ")(?:\.|/path/to/opsmith)(?=\[)')
_NEXT_TABLE = "[project.optional-dependencies]\n"


def readme(text: str, repository: str, tag: str) -> str:
    """Return the README with links to the files of a tag, and an install line to paste."""

    def absolute(link: re.Match[str]) -> str:
        picture, words, path = link.groups()
        host = "raw.githubusercontent.com" if picture else "github.com"
        inside = tag if picture else f"blob/{tag}"
        return f"{picture}[{words}](https://{host}/{repository}/{inside}/{path})"

    return from_pypi(_LINK.sub(absolute, text))


def from_pypi(text: str) -> str:
    """Return a page that installs opsmith from PyPI in place of a clone."""
    return _IN_CLONE.sub("opsmith", text)


def project(text: str, repository: str) -> str:
    """Return the text of pyproject.toml with the project's addresses."""
    address = f"https://github.com/{repository}"
    urls = {
        "Source": address,
        "Issues": f"{address}/issues",
        "Changelog": f"{address}/blob/main/CHANGELOG.md",
    }
    table = "[project.urls]\n" + "".join(f'{name} = "{url}"\n' for name, url in urls.items())
    return text.replace(_NEXT_TABLE, f"{table}\n{_NEXT_TABLE}")


if __name__ == "__main__":
    repository, tag = sys.argv[1:]
    for path, changed in (
        (_ROOT / "README.md", lambda text: readme(text, repository, tag)),
        (_ROOT / "pyproject.toml", lambda text: project(text, repository)),
        *((page, from_pypi) for page in sorted((_ROOT / "docs").rglob("*.md"))),
    ):
        path.write_text(changed(path.read_text()))
