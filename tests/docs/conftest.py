"""The site's pages, as its generator makes them."""

import json
import os
import sys
from pathlib import Path

import pytest
from filelock import FileLock

REPOSITORY = Path(__file__).parents[2]
sys.path.insert(0, str(REPOSITORY / "docs" / "site"))


@pytest.fixture(scope="session")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Every page of the site by its place, as Markdown: those written by hand, and those made.

    The gallery's is empty here, and the notebook's without outputs. Making the others takes long,
    so the test processes of one run share them.
    """
    folder = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        folder = folder.parent
    file = folder / "pages.json"
    with FileLock(f"{file}.lock"):
        if not file.exists():
            file.write_text(json.dumps(_pages()))
    return json.loads(file.read_text())


@pytest.fixture(scope="session")
def gallery() -> str:
    """The gallery's page, for which each operator is built and exported."""
    import gallery_page

    return gallery_page.page()


def _pages() -> dict[str, str]:
    import gallery_page
    import generated
    import notebook
    import repository

    docs = REPOSITORY / "docs"
    written = {
        path.relative_to(docs).as_posix(): path.read_text() for path in sorted(docs.rglob("*.md"))
    }
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gallery_page, "page", lambda: "")
        patch.setattr(notebook, "executed", lambda read: read)
        written |= generated.pages()
    return written | repository.pages(written, docs)
