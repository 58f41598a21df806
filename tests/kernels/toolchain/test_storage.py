"""Places that cannot be written, and files in the cache that nobody of opsmith's wrote."""

from __future__ import annotations

import errno
import os
import resource
import tempfile
from pathlib import Path

import pytest

from opsmith import BuildError, OpsmithError, StorageError
from opsmith.kernels import cache_folder
from opsmith.kernels.toolchain import object_cache
from opsmith.kernels.toolchain.recipe import Recipe
from opsmith.system import files
from opsmith.system.files import locked, needing_space, write_atomically, write_output
from opsmith.system.scratch import scratch_folder

FULL = os.strerror(errno.ENOSPC)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "file"
    path.write_text("")
    return path


@pytest.mark.parametrize("below", ["", "below", "below/that"])
def test_a_cache_in_an_impossible_place_is_refused_by_its_variable(
    file: Path, monkeypatch: pytest.MonkeyPatch, below: str
) -> None:
    place = file / below
    monkeypatch.setenv("OPSMITH_CACHE", str(place))
    words = rf"the cache {place} cannot be written \(.*: {file}.*\)\. Set OPSMITH_CACHE to a folder"
    with pytest.raises(StorageError, match=words):
        write_atomically(cache_folder() / "some" / "text", "text")
    with pytest.raises(StorageError, match=words), locked(cache_folder() / "some"):
        pass


def test_a_cache_beside_the_working_directory_is_found_from_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OPSMITH_CACHE", "cache")
    assert cache_folder() == tmp_path / "cache"


def test_a_cache_of_too_long_a_name_is_refused_by_its_variable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path / ("long" * 100)
    monkeypatch.setenv("OPSMITH_CACHE", str(place))
    with pytest.raises(StorageError, match=rf"the cache {place} cannot be written \(.*too long"):
        write_atomically(cache_folder() / "text", "text")


def test_a_cache_in_a_home_that_is_not_there_is_refused_by_its_variable(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OPSMITH_CACHE", "~nobody-is-called-so/cache")
    with pytest.raises(StorageError, match="OPSMITH_CACHE is '~nobody-is-called-so/cache', and"):
        cache_folder()
    monkeypatch.delenv("OPSMITH_CACHE")
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(Path, "home", lambda: Path("~nobody-is-called-so").expanduser())
    words = "HOME is not set, and the home folder cannot be found. Set OPSMITH_CACHE to a"
    with pytest.raises(StorageError, match=words):
        cache_folder()


def test_a_home_in_which_nothing_can_be_made_is_refused_by_the_caches_variable(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("OPSMITH_CACHE")
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(Path, "home", lambda: Path("/proc/nobody"))
    words = r"the cache /proc/nobody/\S+ cannot be written \(.*: /proc/nobody\)\. Set OPSMITH_CACHE"
    with pytest.raises(StorageError, match=words):
        write_atomically(cache_folder() / "some" / "text", "text")


@pytest.mark.parametrize("variable", ["OPSMITH_CACHE", "TMPDIR"])
def test_a_full_disk_is_named_with_the_variable_that_chose_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    for name in ("OPSMITH_CACHE", "TMPDIR"):
        (tmp_path / name).mkdir()
        monkeypatch.setenv(name, str(tmp_path / name))
    monkeypatch.setattr(tempfile, "tempdir", None)
    full = tmp_path / variable
    words = rf"{FULL}: {full}\)\. Free some space, or set {variable} to a folder"
    with pytest.raises(StorageError, match=words), needing_space(full / "one"):
        raise OSError(errno.ENOSPC, FULL, str(full))
    # Whatever else failed there.
    monkeypatch.setattr(files, "_is_full", lambda place: place == full)
    with pytest.raises(StorageError, match=words), needing_space(tmp_path / "one"):
        raise BuildError("The CXX compiler identification is unknown")


@pytest.mark.parametrize("before", [None, "what was there"])
def test_a_file_that_a_user_named_is_written_whole_or_not_at_all(
    tmp_path: Path, before: str | None
) -> None:
    path = tmp_path / "report.html"
    if before is not None:
        path.write_text(before)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, limits[1]))
    try:
        with pytest.raises(OSError, match="File too large") as caught:
            write_output(path, "x" * 5000)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert caught.value.filename == str(path)
    assert [one.read_text() for one in tmp_path.iterdir()] == ([before] if before else [])
    write_output(path, "x" * 5000)
    assert path.read_text() == "x" * 5000


def test_a_pipe_and_the_target_of_a_link_are_written_themselves(tmp_path: Path) -> None:
    target, link = tmp_path / "target", tmp_path / "link"
    link.symlink_to(target)
    write_output(link, b"text")
    assert link.is_symlink()
    assert target.read_bytes() == b"text"
    read, write = os.pipe()
    write_output(Path(f"/proc/self/fd/{write}"), "text")
    assert os.read(read, 100) == b"text"


def test_what_fails_for_another_reason_keeps_its_words(tmp_path: Path) -> None:
    with pytest.raises(BuildError, match="does not compile"), needing_space(tmp_path / "one"):
        raise BuildError("it does not compile")
    with pytest.raises(FileNotFoundError), needing_space(tmp_path / "one"):
        (tmp_path / "absent").read_text()


def test_a_compiler_that_has_no_space_is_a_full_folder_for_temporary_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiler = tmp_path / "g++"
    compiler.write_text(
        '#!/bin/sh\ncase "$*" in *--version*) echo "g++ (GCC) 14 Free Software Foundation";;\n'
        f"*) echo 'as: main.o: {FULL}' >&2; exit 1;; esac\n"
    )
    compiler.chmod(0o755)
    monkeypatch.setenv("CXX", str(compiler))
    monkeypatch.setenv("OPSMITH_CACHE", str(tmp_path / "cache"))
    (tmp_path / "main.cpp").write_text("int main() {}\n")
    with pytest.raises(StorageError, match=rf"{FULL}.*or set TMPDIR to a folder"):
        Recipe("full", [tmp_path / "main.cpp"], torch="none").build()


def test_no_folder_for_temporary_files_is_said_by_its_variable(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def none() -> str:
        raise FileNotFoundError(errno.ENOENT, "No usable temporary directory found")

    monkeypatch.setattr(tempfile, "gettempdir", none)
    with (
        pytest.raises(StorageError, match=r"No usable.*Set TMPDIR to a folder"),
        scratch_folder(""),
    ):
        pass


@pytest.mark.parametrize(
    "text",
    ['{"a": 1}', "[1, null]", '[{"file": 3}]', '[{"included": []}]', "[" * 100_000, "no JSON", "7"],
)
def test_a_list_of_the_cache_that_is_no_such_list_is_as_if_it_were_not_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    monkeypatch.setenv("OPSMITH_CACHE", str(tmp_path))
    (tmp_path / "variants.json").write_text(text)
    assert object_cache.find(tmp_path) is None
    stored = object_cache.store(tmp_path, "one", b"data", {}, "what")
    assert object_cache.find(tmp_path) == stored


def test_files_that_a_kill_left_go_when_the_same_is_written_again(tmp_path: Path) -> None:
    left = tmp_path / ".text.opsmith-a1b2c3d4"
    left.write_text("half")
    others = [tmp_path / ".text.backup-of-mine", tmp_path / ".other.opsmith-a1b2c3d4"]
    for other in others:
        other.write_text("")
    write_atomically(tmp_path / "text", "whole")
    assert sorted(tmp_path.iterdir()) == sorted([*others, tmp_path / "text"])


def test_the_command_line_says_it_in_one_line(cli, file: Path, monkeypatch) -> None:
    monkeypatch.setenv("OPSMITH_CACHE", str(file / "cache"))
    source = Path(__file__).parents[3] / "gallery" / "my_add" / "my_add.py"
    said = cli("build", source)
    assert said.code == 1
    (line,) = [line for line in said.stderr.splitlines() if line.startswith("error: ")]
    assert line.startswith(f"error: the cache {file}/cache cannot be written")
    said = cli("adopt", "aten::asinh", "--out", file / "asinh.py")
    assert said.code == 2
    assert f"there is no folder {file}." in said.stderr
    assert isinstance(StorageError("why"), OpsmithError)
