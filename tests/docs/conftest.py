"""The site's pages, as its generator makes them."""

import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]
sys.path.insert(0, str(REPOSITORY / "docs" / "site"))


@pytest.fixture(scope="session")
def pages() -> dict[str, str]:
    """Every page of the site by its place, as Markdown: those written by hand, and those made."""
    import generated
    import repository

    docs = REPOSITORY / "docs"
    written = {
        path.relative_to(docs).as_posix(): path.read_text() for path in sorted(docs.rglob("*.md"))
    }
    written |= generated.pages()
    return written | repository.pages(written, docs)
