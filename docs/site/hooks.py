"""Add to the site what ProperDocs does not know, while it builds.

Pages that are generated from the code are added, links that leave ``docs/`` lead to a copy of the
file on the site, and every page is written as Markdown too, with ``llms.txt`` as their index.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import generated
import repository
from properdocs.structure.files import File, Files
from properdocs.structure.nav import Navigation, Section
from properdocs.structure.pages import Page

#: What Material's offline plugin fetches, so that a page from a folder has a worker to search in.
_SHIM = "https://unpkg.com/iframe-worker/shim"

_markdown: dict[str, str] = {}
_sections: list[tuple[str, list[Page]]] = []


def on_config(config: Any) -> Any:
    """Show a selector of releases where the site is built to stand beside theirs."""
    if os.environ.get("OPSMITH_SITE_VERSIONS"):
        config.extra["version"] = {"provider": "mike"}
    return config


def on_files(files: Files, *, config: Any) -> Files:
    """Add the generated pages, and the files of the repository that pages link to."""
    pages = generated.pages()
    written = {file.src_uri: file.content_string for file in files.documentation_pages()}
    pages |= repository.pages(written | pages, Path(config.docs_dir))
    for place, text in pages.items():
        files.append(File.generated(config, place, content=text))
    return files


def on_page_markdown(markdown: str, *, page: Page, config: Any, files: Files) -> str:
    """Point links that leave ``docs/`` at the site's copies, and keep the page's text."""
    if page.file.src_uri.startswith("repository/"):
        page.meta["search"] = {"boost": 0.2}  # a source names all that the reference explains
    if page.is_homepage:
        page.meta["hide"] = ["toc"]  # the first example is as wide as a declaration
    text = repository.redirected(markdown, page.file.src_uri, Path(config.docs_dir))
    text = repository.without_names(text)
    _markdown[page.file.src_uri] = text
    return text


def on_nav(nav: Navigation, *, config: Any, files: Files) -> Navigation:
    """Keep the order of pages, for ``llms.txt``."""
    _sections[:] = [
        (item.title, list(_pages_of(item)))
        for item in nav.items
        if isinstance(item, Section | Page)
    ]
    return nav


def on_post_page(output: str, *, page: Page, config: Any) -> str:
    """Take the worker from the site."""
    return _local(output, page.file.src_uri.count("/"))


def on_post_template(output_content: str, *, template_name: str, config: Any) -> str:
    """The same on the page for addresses that lead nowhere."""
    return _local(output_content, 0)


def _local(text: str, depth: int) -> str:
    return text.replace(_SHIM, "../" * depth + "assets/worker.js")


def on_post_build(*, config: Any) -> None:
    """Write the pages as Markdown, and their index."""
    site = Path(config.site_dir)
    for place, text in _markdown.items():
        path = site / place
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    (site / "llms.txt").write_text(_index(config), encoding="utf-8")


def _pages_of(item: Section | Page) -> list[Page]:
    if isinstance(item, Page):
        return [item]
    return [page for child in item.children for page in _pages_of(child)]


def _index(config: Any) -> str:
    lines = [f"# {config.site_name}", "", f"> {config.site_description}", ""]
    for title, pages in _sections:
        lines += [f"## {title or 'Home'}", ""]
        for page in pages:
            summary = repository.first_sentence(_markdown[page.file.src_uri])
            name = page.title or page.file.src_uri
            lines.append(f"- [{name}]({page.file.src_uri}): {summary}")
        lines.append("")
    return "\n".join(lines)
