"""Files of the repository that pages link to: each becomes a page of the site.

A page links to a source as one reads it in a checkout, ``../../gallery/my_add/my_add.cpp``. On the
site that is ``repository/gallery/my_add/my_add.cpp.md``.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

_FENCE = re.compile(r"(^```.*?^```$|`[^`\n]+`)", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"(?<=\]\()(?!https?:|mailto:|#)([^)#\s]+)")
_LANGUAGES = {
    ".c": "c",
    ".cpp": "cpp",
    ".cu": "cuda",
    ".cuh": "cuda",
    ".h": "cpp",
    ".json": "json",
    ".py": "python",
    ".toml": "toml",
}
#: Pages of the site that no other page has to link to.
ROOTS = ("CHANGELOG.md", "CONTRIBUTING.md", "README.md", "README.zh.md", "gallery/README.md")


def without_names(text: str) -> str:
    """A page without the comments that name its figures, which `make figures` needs."""
    return re.sub(r"<!--(=[\w/-]+|/)-->", "", text)


def pages(written: Mapping[str, str], docs: Path) -> dict[str, str]:
    """The pages of everything outside of ``docs/`` that pages link to, and that these link to.

    Args:
        written: every page of the site by its place, as Markdown.
        docs: the folder of the site's pages.

    Returns:
        The pages' Markdown by their places. Their links are those of the files.
    """
    root = docs.parent
    waiting = [root / name for name in ROOTS if (root / name).exists()]
    for place, text in written.items():
        waiting += _outside(text, docs / place, docs)
    found: dict[str, str] = {}
    while waiting:
        path = waiting.pop()
        place = _place(path, root)
        if place in found:
            continue
        found[place] = text = _page(path, root)
        if _is_prose(path):
            waiting += _outside(text, _document(path), docs)
    return dict(sorted(found.items()))


def redirected(text: str, place: str, docs: Path) -> str:
    """The Markdown of a page, its links pointing at pages of the site.

    Args:
        text: as it was written.
        place: of the page, as in ``reference/jax.md``.
        docs: the folder of the site's pages.
    """
    here = Path(place).parent
    origin = _origin(place, docs)

    def leading(link: str) -> str:
        path = Path(os.path.normpath(origin.parent / link))
        if not path.exists():
            return link  # generated, or wrong: then MkDocs says so
        inside = path.is_relative_to(docs) and not path.is_relative_to(docs / "site")
        target = path.relative_to(docs) if inside else Path(_place(path, docs.parent))
        return os.path.relpath(target, here)

    return _with_links(text, leading)


def first_sentence(text: str) -> str:
    """The first sentence of a page's prose, on one line."""
    for block in re.split(r"\n\s*\n", _FENCE.sub(_only_inline, text)):
        if block.strip() and not re.match(r"\s*(#|<|\||!\[|---|>)", block):
            plain = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", " ".join(block.split()))
            return re.split(r"(?<=[.!?。:])\s", plain)[0]
    return ""


def _only_inline(match: re.Match[str]) -> str:
    return "" if match[0].startswith("```") else match[0]


def _with_links(text: str, change: Callable[[str], str]) -> str:
    parts = _FENCE.split(text)
    # A link's words may be code: [`file`](place). The link itself is outside of it.
    return "".join(
        part if at % 2 else _LINK.sub(lambda match: change(match[1]), part)
        for at, part in enumerate(parts)
    )


def _outside(text: str, path: Path, docs: Path) -> Iterator[Path]:
    links: list[str] = []
    _with_links(text, lambda link: links.append(link) or link)
    for link in links:
        target = Path(os.path.normpath(path.parent / link))
        outside = not target.is_relative_to(docs) or target.is_relative_to(docs / "site")
        if outside and target.exists():
            yield target


def _is_prose(path: Path) -> bool:
    return _document(path).suffix == ".md"


def _document(path: Path) -> Path:
    """What is shown of a path: the README of a folder that has one."""
    readme = path / "README.md"
    return readme if readme.exists() else path


def _place(path: Path, root: Path) -> str:
    shown = _document(path).relative_to(root).as_posix()
    if path.is_dir() and not _is_prose(path):
        return f"repository/{shown}/index.md"
    return f"repository/{shown}" if shown.endswith(".md") else f"repository/{shown}.md"


def _origin(place: str, docs: Path) -> Path:
    """The file that a page's links are written in."""
    if not place.startswith("repository/"):
        return docs / place
    name = place.removeprefix("repository/")
    path = docs.parent / name
    return path if path.exists() else docs.parent / name.removesuffix(".md")


def _page(path: Path, root: Path) -> str:
    document = _document(path)
    name = path.relative_to(root).as_posix()
    if document.is_dir():
        files = sorted(one.name for one in document.iterdir() if one.name[0] not in "._")
        return "\n".join([f"# {name}", "", *(f"- `{file}`" for file in files), ""])
    text = document.read_text(encoding="utf-8")
    if document.suffix == ".md":
        return text
    return f"# {name}\n\n```{_LANGUAGES.get(path.suffix, 'text')}\n{text.rstrip()}\n```\n"
