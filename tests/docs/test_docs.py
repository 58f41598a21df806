"""The documents keep their word: their Python runs, and what they quote is what the file says."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]
PAGES = sorted((REPOSITORY / "docs").rglob("*.md"))


#: Pages that the site's generator writes: the navigation has them, `docs/` does not.
GENERATED = {
    REPOSITORY / "docs" / place
    for place in re.findall(r"[\w/.-]+\.md\b", (REPOSITORY / "properdocs.yml").read_text())
}


def named(page: Path) -> str:
    """A page as a test's name."""
    return page.relative_to(REPOSITORY).as_posix().removeprefix("docs/").removesuffix(".md")


FENCE = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
# A quotation names its file just before: "From `gallery/my_add/my_add.cpp`:".
QUOTATION = re.compile(r"[Ff]rom `([^`]+)`:\n\n```\w+\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@pytest.mark.slow(cases=4)
@pytest.mark.parametrize(
    "page", [page for page in PAGES if "\n```python\n" in page.read_text()], ids=named
)
def test_the_python_of_a_page_runs_from_top_to_bottom(page, tmp_path):
    text = page.read_text()
    quoted = {body for _, body in QUOTATION.findall(text)}
    blocks = [body for kind, body in FENCE.findall(text) if kind == "python" and body not in quoted]
    # In a process of its own: what a page declares stays declared.
    # Not called as what it imports: onnx.py would hide onnx.
    script = tmp_path / f"page_{page.stem}.py"
    script.write_text("\n".join(blocks))
    done = subprocess.run(
        [sys.executable, script], capture_output=True, text=True, check=False, cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_quotations_are_what_the_file_says(page):
    for file, body in QUOTATION.findall(page.read_text()):
        source = (REPOSITORY / file).read_text()
        # `...` on a line of its own stands for whatever was left out.
        for part in re.split(r"^\s*(?:\.\.\.|// \.\.\.|# \.\.\.)\n", body, flags=re.MULTILINE):
            assert part in source, f"{file} does not say (any more):\n{part}"


@pytest.mark.parametrize(
    "page",
    [
        *PAGES,
        *(REPOSITORY / name for name in ("README.md", "README.zh.md", "CONTRIBUTING.md")),
        *sorted((REPOSITORY / "gallery").rglob("README.md")),
        *sorted((REPOSITORY / "examples").rglob("README.md")),
    ],
    ids=named,
)
def test_links_within_the_repository_lead_somewhere(page):
    prose = re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    for link in re.findall(r"\]\((?!https?:)([^)#]+)(?:#[^)]*)?\)", prose):
        target = Path(os.path.normpath(page.parent / link))
        assert target.exists() or target in GENERATED, link
