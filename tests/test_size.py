"""The packages have a budget of lines, which only falls."""

from __future__ import annotations

from pathlib import Path

from size import MOST, lines_by_room, sum_of_lines


def test_the_packages_have_no_more_lines_than_the_budget_allows() -> None:
    found, most = sum_of_lines(), int(MOST.read_text())
    assert found <= most, (
        f"the packages have {found:,} lines, and tests/size.txt allows {most:,}. Pay for what is "
        "added with what goes (`make size` shows the rooms), in place of raising the number."
    )


def test_every_kind_of_file_counts_once_and_a_link_where_it_is_stored(tmp_path: Path) -> None:
    for place, text in {
        "opsmith/loose.py": "1\n2\n",
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
        "opsmith/loose files": {"Python": 2, "sum": 2},
    }
    assert sum_of_lines(tmp_path) == 15
