"""A release knows the repository's address: PyPI shows its README, and every link leads there."""

import json
import re
import sys
from pathlib import Path

import pytest

if sys.version_info >= (3, 11):
    import tomllib
else:
    tomllib = pytest.importorskip("tomli")

REPOSITORY = Path(__file__).parents[2]
LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")


def test_every_link_of_a_released_readme_is_absolute_and_leads_to_a_file():
    import release

    text = release.readme((REPOSITORY / "README.md").read_text(), "them/opsmith", "v0.1.0")
    links = LINK.findall(text)
    assert len(links) > 20
    assert [link for link in links if not link.startswith("https://")] == []
    own = [link for link in links if "them/opsmith/" in link]
    assert [link for link in own if ".svg" in link] == [
        "https://raw.githubusercontent.com/them/opsmith/v0.1.0/docs/assets/check.svg"
    ]
    for link in own:
        path = link.partition("/v0.1.0/")[2].partition("#")[0]
        assert (REPOSITORY / path).exists(), link


def test_the_install_line_of_a_release_can_be_pasted():
    import release

    text = release.readme((REPOSITORY / "README.md").read_text(), "them/opsmith", "v0.1.0")
    line = next(line for line in text.splitlines() if line.startswith("pip install"))
    assert line.partition("#")[0].strip() == 'pip install "opsmith[check,onnx]"'
    assert "clone" not in line


def test_tutorials_of_a_release_install_it_from_pypi():
    import release

    for page in (REPOSITORY / "docs" / "tutorials").glob("*.md"):
        text = release.from_pypi(page.read_text())
        assert "/path/to/opsmith[" not in text
    assert 'pip install "opsmith[check]"' in release.from_pypi(
        (REPOSITORY / "docs" / "tutorials" / "kernel.md").read_text()
    )


def test_a_release_states_the_projects_addresses():
    import release

    before = (REPOSITORY / "pyproject.toml").read_text()
    after = tomllib.loads(release.project(before, "them/opsmith"))
    urls = after["project"].pop("urls")
    assert urls["Source"] == "https://github.com/them/opsmith"
    assert after == tomllib.loads(before)


def test_the_site_of_a_release_stands_beside_those_of_others_and_a_patch_replaces_it(tmp_path):
    import versions

    built, pages = tmp_path / "built", tmp_path / "pages"
    built.mkdir()
    for tag in ("v0.9.0", "v0.10.0", "v0.9.1"):
        (built / "index.html").write_text(tag)
        versions.add(built, pages, tag)
    assert json.loads((pages / "versions.json").read_text()) == [
        {"version": "0.10", "title": "0.10", "aliases": ["latest"]},
        {"version": "0.9", "title": "0.9", "aliases": []},
    ]
    assert (pages / "0.9" / "index.html").read_text() == "v0.9.1"
    assert 'content="0; url=0.10/"' in (pages / "index.html").read_text()
    with pytest.raises(ValueError, match=r"^the tag 'main' is no release; expected v1\.2\.3$"):
        versions.add(built, pages, "main")
