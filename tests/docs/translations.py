"""What a translated page has in common with its original, whatever the language."""

import re

FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def prose(text: str) -> str:
    """A page without its code."""
    return FENCE.sub("", text)


def blocks(text: str) -> list[str]:
    """What empty lines part."""
    return [block.strip() for block in re.split(r"\n\s*\n", prose(text)) if block.strip()]


def structure(text: str) -> list[str]:
    """Headings by their level, tables by their columns and rows, lists by their length."""
    found: list[str] = []
    for block in blocks(text):
        lines = block.splitlines()
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


def links(text: str) -> set[str]:
    """Where a page's links lead, as they are written."""
    return set(re.findall(r"\]\(([^)]+)\)", prose(text)))


def not_in_chinese(text: str) -> list[str]:
    """The blocks with words of which none is Chinese."""
    return [
        block
        for block in blocks(text)
        if re.search(r"[A-Za-z]{3}", re.sub(r"`[^`]*`", "", block))
        and not re.search(r"[\u4e00-\u9fff]", block)
    ]
