"""The packages have a budget of lines, which only falls. ``make size`` prints where they are.

Every text file counts: Python, C++, templates and data; a link counts where its file is stored. As
a program this file needs nothing but Python, no environment.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path

REPOSITORY = Path(__file__).parents[1]
#: What is counted; a package that does not exist counts nothing.
PACKAGES = ("opsmith", "emulators")
#: The most lines that the packages may have together. A change may lower it, and must not raise it.
MOST = 101_110
#: What the core finds and does not import, as the contracts in pyproject.toml say: the products.
PRODUCTS = re.compile(
    r"emulators/|opsmith/(bench|checks|drafting|judge|wheels)/|opsmith/testing\.py"
    r"|opsmith/targets/(?!exporting/)\w+/|opsmith/kernels/languages/emulated_\w+/"
    r"|opsmith/kernels/(languages|include/opsmith)/tvm_ffi\."
    r"|opsmith/cli/commands/(adopt|bench|check|emulate|explain|judge|wheel)\.py"
    r"|opsmith/cli/product_options\.py"
)
#: The most lines that all else may have, the core.
MOST_OF_CORE = 37_030
_KINDS = {
    ".py": "Python",
    ".pyi": "Python",
    ".j2": "templates",
    ".h": "C++",
    ".cpp": "C++",
    ".cuh": "C++",
}
_COLUMNS = ("Python", "C++", "templates", "data", "sum")


def lines_by_room(repository: Path = REPOSITORY) -> dict[str, Counter[str]]:
    """Return the lines of each room by kind of file, the largest room first.

    A room is a folder of a package; the files beside the folders are the room ``loose files``.
    """

    def room_of(place: Path) -> str:
        return f"{place.parts[0]}/{place.parts[1] if len(place.parts) > 2 else 'loose files'}"

    return _lines_by(room_of, repository)


def lines_of_core_and_products(repository: Path = REPOSITORY) -> dict[str, Counter[str]]:
    """Return the lines of the core and of all products, by kind of file."""
    return _lines_by(
        lambda place: "products" if PRODUCTS.match(place.as_posix()) else "core", repository
    )


def _lines_by(part_of: Callable[[Path], str], repository: Path) -> dict[str, Counter[str]]:
    parts: dict[str, Counter[str]] = {}
    for package in PACKAGES:
        for path in (repository / package).rglob("*"):
            if path.is_symlink() or not path.is_file() or "__pycache__" in path.parts:
                continue
            # The stand-ins of the standard library's headers have no suffix, as the headers.
            kind = _KINDS.get(path.suffix, "data" if path.suffix else "C++")
            count = path.read_bytes().count(b"\n")
            part = part_of(path.relative_to(repository))
            parts.setdefault(part, Counter()).update({kind: count, "sum": count})
    return dict(sorted(parts.items(), key=lambda item: -item[1]["sum"]))


def sum_of_lines(repository: Path = REPOSITORY) -> int:
    """Return how many lines the packages have together."""
    return sum(room["sum"] for room in lines_by_room(repository).values())


def test_the_packages_have_no_more_lines_than_the_budget_allows() -> None:
    found = sum_of_lines()
    assert found <= MOST, (
        f"the packages have {found:,} lines, and {MOST:,} are allowed. Pay for what is added with "
        "what goes (`make size` shows the rooms), in place of raising the number."
    )


def test_the_core_has_no_more_lines_than_a_reader_can_hold() -> None:
    found = lines_of_core_and_products()["core"]["sum"]
    assert found <= MOST_OF_CORE, f"the core has {found:,} lines, {MOST_OF_CORE:,} are allowed"


def test_every_kind_of_file_counts_once_and_a_link_where_it_is_stored(tmp_path: Path) -> None:
    for place, text in {
        "opsmith/loose.py": "1\n2\n",
        "opsmith/targets/exporting/loose.py": "1\n",
        "opsmith/targets/jax/loose.py": "1\n2\n",
        "opsmith/room/deep/kernel.h": "1\n2\n3\n",
        "opsmith/room/deep/array": "1\n",
        "opsmith/room/text.md": "1\n2\n3\n4\n",
        "opsmith/room/__pycache__/made.py": "1\n",
        "emulators/cuda/memory.cpp": "1\n2\n3\n4\n5\n",
        "docs/page.md": "1\n",
    }.items():
        (tmp_path / place).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / place).write_text(text)
    (tmp_path / "opsmith/room/page.md").symlink_to(tmp_path / "docs/page.md")
    assert lines_by_room(tmp_path) == {
        "opsmith/room": {"C++": 4, "data": 4, "sum": 8},
        "emulators/cuda": {"C++": 5, "sum": 5},
        "opsmith/targets": {"Python": 3, "sum": 3},
        "opsmith/loose files": {"Python": 2, "sum": 2},
    }
    assert lines_of_core_and_products(tmp_path) == {
        "core": {"C++": 4, "Python": 3, "data": 4, "sum": 11},
        "products": {"C++": 5, "Python": 2, "sum": 7},
    }
    assert sum_of_lines(tmp_path) == 18


if __name__ == "__main__":
    found = lines_by_room()
    found["together"] = sum(found.values(), Counter())
    found |= lines_of_core_and_products()
    width = max(map(len, found))
    print(f"{'':{width}}", *(f"{column:>10}" for column in _COLUMNS))
    for name, room in found.items():
        print(f"{name:{width}}", *(f"{room[column]:>10,}" for column in _COLUMNS))
    print(f"\ntests/test_size.py allows {MOST:,}, and {MOST_OF_CORE:,} of the core")
