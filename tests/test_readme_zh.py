"""The Chinese README says what the English one says: the same parts, tables, code and links."""

import re
from pathlib import Path

REPOSITORY = Path(__file__).parents[1]
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
ENGLISH, CHINESE = ((REPOSITORY / name).read_text() for name in ("README.md", "README.zh.md"))


def prose(text: str) -> str:
    return FENCE.sub("", text)


def structure(text: str) -> list[str]:
    """Headings by their level, tables by their columns and rows, lists by their length."""
    found: list[str] = []
    for block in re.split(r"\n\s*\n", prose(text)):
        lines = block.strip().splitlines()
        if not lines:
            continue
        if lines[0].startswith("#"):
            found.append(f"heading {len(lines[0]) - len(lines[0].lstrip('#'))}")
        elif lines[0].startswith("|"):
            cells = {len(re.findall(r"(?<!\\)\|", line)) - 1 for line in lines}
            found.append(f"table of {len(lines)} rows, {sorted(cells)} columns")
        elif lines[0].startswith("- "):
            found.append(f"list of {len(lines)}")
        else:
            found.append("picture" if lines[0].startswith("![") else "paragraph")
    return found


def test_it_has_the_same_headings_tables_lists_and_paragraphs():
    assert structure(CHINESE) == structure(ENGLISH)


def test_it_has_the_same_code():
    assert FENCE.findall(CHINESE) == FENCE.findall(ENGLISH)
    assert len(FENCE.findall(ENGLISH)) > 7


def test_it_leads_to_the_same_places():
    def links(text):
        return sorted(
            set(re.findall(r"\]\(([^)]+)\)", prose(text))) - {"README.md", "README.zh.md"}
        )

    assert links(CHINESE) == links(ENGLISH)


def test_it_has_the_same_figures():
    def figures(text):
        rows = [line for line in prose(text).splitlines() if line.startswith("|")]
        return [sorted(re.findall(r"\d+(?:[.,]\d+)*", row)) for row in rows]

    assert figures(CHINESE) == figures(ENGLISH)


def test_it_is_in_chinese():
    for block in re.split(r"\n\s*\n", prose(CHINESE))[2:]:
        if re.search(r"[A-Za-z]{3}", block) and not block.startswith("`"):
            assert re.search(r"[\u4e00-\u9fff]", block), block
