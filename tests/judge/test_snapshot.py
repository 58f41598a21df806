"""The copies that are judged: of the files that are named, and of no others."""

import hashlib
import os
from pathlib import Path

import pytest

from opsmith.errors import LoadError
from opsmith.judge.snapshot import TooLargeError, collect


def written(folder: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


def names(taken) -> set[str]:
    return {str(Path(path).relative_to(taken.original)) for path in taken.digests}


FILES = {
    "kernels.py": (
        "import helper\nfrom tools import (\n    inner,\n)\n"
        "SOURCES = ['csrc/scale.cpp', 'table.txt']\n"
        "import importlib\nlate = importlib.import_module('named')\n"
    ),
    "helper.py": "def f():\n    from later import g\n",
    "later.py": "",
    "named.py": "",
    "tools/__init__.py": "from . import beside\n",
    "tools/inner.py": "",
    "tools/beside.py": "",
    "tools/unnamed.py": "",
    "csrc/scale.cpp": '#include "scale.h"\n#include "../include/deep.h"\n#include <vector>\n',
    "csrc/scale.h": "",
    "include/deep.h": "",
    "table.txt": "1 2 3",
    "other.py": "",
    "secret.txt": "",
}


def test_what_a_file_names_is_copied_and_nothing_else(tmp_path):
    place = written(tmp_path / "given", FILES)
    taken = collect(place / "kernels.py").copy_to(tmp_path / "copy")
    assert names(taken) == {*FILES} - {"tools/unnamed.py", "other.py", "secret.txt"}
    for name in names(taken):
        assert (taken.root / name).read_text() == FILES[name]
        digest = hashlib.sha256(FILES[name].encode()).hexdigest()
        assert taken.digests[str(place / name)] == digest
    assert taken.file == tmp_path / "copy" / "kernels.py"
    assert taken.named_as_given(f"at {taken.file}:3") == f"at {place / 'kernels.py'}:3"


def test_a_file_in_a_package_is_copied_with_its_package(tmp_path):
    place = written(
        tmp_path / "given",
        {
            "pkg/__init__.py": "",
            "pkg/sub/__init__.py": "",
            "pkg/sub/spec.py": "from ..a import b",
            "pkg/a.py": "",
            "pkg/c.py": "",
        },
    )
    taken = collect(place / "pkg/sub/spec.py").copy_to(tmp_path / "copy")
    assert taken.original == place
    assert {"pkg/sub/spec.py", "pkg/sub/__init__.py", "pkg/__init__.py", "pkg/a.py"} == names(taken)


def test_a_change_of_the_original_changes_no_copy(tmp_path):
    place = written(tmp_path / "given", {"spec.py": "import helper\n", "helper.py": "A = 1\n"})
    taken = collect(place / "spec.py").copy_to(tmp_path / "copy")
    (place / "helper.py").write_text("A = 2\n")
    (place / "spec.py").unlink()
    assert (taken.root / "helper.py").read_text() == "A = 1\n"
    assert taken.sources[taken.root / "helper.py"] == b"A = 1\n"


def test_links_out_of_the_folder_pipes_and_odd_names_are_no_part_of_it(tmp_path):
    outside = written(tmp_path / "outside", {"secret.py": "KEY = 1\n", "x.h": ""})
    odd = ["../outside/x.h", "a" * 390, "d/" + "b" * 380, "\0", "/etc/passwd"]
    text = "import secret, pipe\n" + "\n".join(f"A = '{name}'" for name in odd)
    place = written(tmp_path / "given", {"k.py": text, "d/e.py": ""})
    (place / "secret.py").symlink_to(outside / "secret.py")
    assert names(collect(place / "k.py").copy_to(tmp_path / "copy")) == {"k.py"}
    os.mkfifo(place / "pipe.py")
    with pytest.raises(LoadError, match=r"pipe\.py is not a regular file"):
        collect(place / "k.py").copy_to(tmp_path / "copy of a pipe")


def test_files_that_are_too_large_are_not_read(tmp_path):
    large = tmp_path / "k.py"
    with large.open("wb") as file:
        file.truncate(200 << 20)
    with pytest.raises(TooLargeError, match="larger than 16 MiB, the most that is judged"):
        collect(large).copy_to(tmp_path / "copy")


def test_many_files_are_too_many(tmp_path):
    place = written(tmp_path / "given", {f"m{number}.py": "" for number in range(600)})
    (place / "k.py").write_text("import " + ", ".join(f"m{number}" for number in range(600)))
    with pytest.raises(TooLargeError, match="more than 500 files"):
        collect(place / "k.py").copy_to(tmp_path / "copy")
