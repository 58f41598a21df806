"""The Chinese README says what the English one says: the same parts, tables, code and links."""

import re
from pathlib import Path

from translations import FENCE, links, not_in_chinese, prose, structure

REPOSITORY = Path(__file__).parents[2]
ENGLISH, CHINESE = ((REPOSITORY / name).read_text() for name in ("README.md", "README.zh.md"))


def test_it_has_the_same_headings_tables_lists_and_paragraphs():
    assert structure(CHINESE) == structure(ENGLISH)


def test_it_has_the_same_code():
    assert FENCE.findall(CHINESE) == FENCE.findall(ENGLISH)
    assert len(FENCE.findall(ENGLISH)) > 4


def test_it_leads_to_the_same_places():
    ours = {"README.md", "README.zh.md"}
    # To the Chinese page where there is one.
    chinese = {link.replace("docs/zh/", "docs/") for link in links(CHINESE)}
    assert chinese - ours == links(ENGLISH) - ours


def test_it_has_the_same_figures():
    def figures(text):
        rows = [line for line in prose(text).splitlines() if line.startswith("|")]
        return [sorted(re.findall(r"\d+(?:[.,]\d+)*", row)) for row in rows]

    assert figures(CHINESE) == figures(ENGLISH)


def test_it_is_in_chinese():
    # The title is the project's name, and a link to the original stands below it.
    assert not_in_chinese(CHINESE.partition("README.md)")[2]) == []
