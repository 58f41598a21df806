"""Print how many lines the packages have, room by room: ``make size``.

Every text file counts: Python, C++, templates and data. A file that is a link counts where it is
stored. What imports none of the packages runs this script, so it needs no environment.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

REPOSITORY = Path(__file__).parents[1]
#: What is counted; a package that does not exist counts nothing.
PACKAGES = ("opsmith", "emulators")
#: The most lines that the packages may have together. A change may lower it, and must not raise it.
MOST = REPOSITORY / "tests" / "size.txt"
_KINDS = {".py": "Python", ".j2": "templates", ".h": "C++", ".cpp": "C++", ".cuh": "C++"}
_COLUMNS = ("Python", "C++", "templates", "data", "sum")


def lines_by_room(repository: Path = REPOSITORY) -> dict[str, Counter[str]]:
    """Return the lines of each room by kind of file, the largest room first.

    A room is a folder of a package; the files beside the folders are the room ``loose files``.
    """
    rooms: dict[str, Counter[str]] = {}
    for package in PACKAGES:
        for path in (repository / package).rglob("*"):
            if path.is_symlink() or not path.is_file() or "__pycache__" in path.parts:
                continue
            place = path.relative_to(repository / package)
            room = f"{package}/{place.parts[0] if len(place.parts) > 1 else 'loose files'}"
            # The stand-ins of the standard library's headers have no suffix, as the headers.
            kind = _KINDS.get(path.suffix, "data" if path.suffix else "C++")
            count = path.read_text(encoding="utf-8").count("\n")
            rooms.setdefault(room, Counter()).update({kind: count, "sum": count})
    return dict(sorted(rooms.items(), key=lambda item: -item[1]["sum"]))


def sum_of_lines(repository: Path = REPOSITORY) -> int:
    """Return how many lines the packages have together."""
    return sum(room["sum"] for room in lines_by_room(repository).values())


if __name__ == "__main__":
    found = lines_by_room()
    found["together"] = sum(found.values(), Counter())
    width = max(map(len, found))
    print(f"{'':{width}}", *(f"{column:>10}" for column in _COLUMNS))
    for name, room in found.items():
        print(f"{name:{width}}", *(f"{room[column]:>10,}" for column in _COLUMNS))
    print(f"\n{MOST.relative_to(REPOSITORY)} allows {int(MOST.read_text()):,}")
