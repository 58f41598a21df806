"""A file that several write at once is one of theirs, whole, and no writer fails."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from opsmith.system.files import write_atomically


def test_writers_of_one_file_do_not_delete_what_another_has_written(tmp_path: Path) -> None:
    path = tmp_path / "file"

    def write(writer: int) -> None:
        for number in range(200):
            write_atomically(path, f"{writer} {number}\n" * 20)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(write, range(4)))
    (line,) = set(path.read_text().splitlines())
    assert line.endswith(" 199")
    assert [one.name for one in tmp_path.iterdir()] == ["file"]
