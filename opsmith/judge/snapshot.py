"""Copies of the files that are judged: each file is read once, copied, and digested.

The judge imports the copy, and the candidate's process gets the copy. A change
of the original afterwards changes neither the verdict nor the digests in the report.
"""

from __future__ import annotations

import hashlib
import os
import re
import stat
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from opsmith.errors import LoadError, OpsmithError
from opsmith.sources.importing import module_name

#: Limits for the files of one side, in bytes and in files.
_MOST_BYTES, _MOST_FILES = 16 << 20, 500
_IMPORTS = re.compile(rb"^[ \t]*(?:from|import)\b[^\n(]*(?:\([^)]*\))?", re.MULTILINE)
_QUOTED = re.compile(rb"\"([^\"\n]{1,400})\"|'([^'\n]{1,400})'")
_WORD = re.compile(rb"\w+")
#: Suffixes of the files that name other files.
_NAMING = (".py", ".c", ".cc", ".cpp", ".cu", ".cuh", ".cxx", ".h", ".hh", ".hpp", ".inl")


class TooLargeError(OpsmithError):
    """The files of a specification or a candidate exceed the limits of a snapshot."""


@dataclass
class Snapshot:
    """Copies of a Python file and of the files beside it that it names.

    Attributes:
        file: the copy of the file.
        root: the copy of the folder from which the file is imported.
        original: the folder that `root` is a copy of.
        digests: the SHA-256 digest of each copied file, by the path of the original.
        sources: the contents of each copied Python file, by the path of the copy.
    """

    file: Path
    root: Path
    original: Path
    digests: dict[str, str] = field(default_factory=dict)
    sources: dict[Path, bytes] = field(default_factory=dict)

    def named_as_given(self, text: str) -> str:
        """Replace the folder of the copies in a message by the folder of the originals."""
        return text.replace(f"{self.root}{os.sep}", f"{self.original}{os.sep}")


@dataclass(frozen=True)
class Files:
    """A Python file and the files beside it that it names, by value.

    Attributes:
        root: the folder from which the file is imported.
        contents: the contents of each file, by its path below `root`.
        digests: the SHA-256 digest of each file, by its path.
        problem: why the files could not be read; empty if they were.
    """

    file: Path
    root: Path
    contents: dict[str, bytes] = field(default_factory=dict)
    digests: dict[str, str] = field(default_factory=dict)
    problem: str = ""

    def copy_to(self, folder: Path) -> Snapshot:
        """Write the files to a folder, except for those that it has already.

        Raises:
            LoadError: the files could not be read.
        """
        if self.problem:
            raise LoadError(self.problem)
        copy = Snapshot(folder / self.file.relative_to(self.root), folder, self.root)
        for name, data in self.contents.items():
            _write(folder / name, data)
            if name.endswith(".py"):
                copy.sources[folder / name] = data
        copy.digests.update(self.digests)
        return copy

    def state(self) -> dict[str, str]:
        """Return the digest of each file by its path below `root`, which no folder's name is in."""
        return {name: hashlib.sha256(data).hexdigest() for name, data in self.contents.items()}


def collect(file: Path) -> Files:
    """Read a Python file, and the files that it names.

    The files are those below the folder from which the file is imported (beside it, or around its
    package) that an import statement or a quoted path in one of the files names: modules, sources,
    headers, data.

    Raises:
        LoadError: the file does not exist.
        TooLargeError: the files are larger or more than the limits.
    """
    file = file.resolve()
    root, _ = module_name(file)
    taken = Files(file, root)
    left, seen, total = [file], {file}, 0
    while left:
        path = left.pop()
        data = _read(path, _MOST_BYTES - total)
        total += len(data)
        taken.contents[str(path.relative_to(root))] = data
        taken.digests[str(path)] = hashlib.sha256(data).hexdigest()
        if path.suffix not in _NAMING:
            continue
        for found in _beside(path, data, root):
            if found not in seen:
                seen.add(found)
                left.append(found)
        if len(seen) > _MOST_FILES:
            raise TooLargeError(f"{file} names more than {_MOST_FILES} files beside it")
    return taken


def share(files: Snapshot, folder: Path) -> None:
    """Copy the files other than Python files to another folder, unless it has them already.

    The path of a kernel's source is relative to the file that declares the operator.
    """
    for name in files.digests:
        path = Path(name).relative_to(files.original)
        if path.suffix != ".py":
            _write(folder / path, (files.root / path).read_bytes())


def _read(path: Path, most: int) -> bytes:
    """Read a regular file of at most `most` bytes."""
    try:
        # A pipe in place of a regular file must not keep the judge waiting.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        raise LoadError(f"{path} cannot be read: {error.strerror}") from error
    with os.fdopen(descriptor, "rb") as opened:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise LoadError(f"{path} is not a regular file")
        data = opened.read(most + 1)
    if len(data) > most:
        raise TooLargeError(
            f"{path} and the files that belong to it are larger than {_MOST_BYTES >> 20} MiB, the "
            "most that is judged"
        )
    return data


def _write(path: Path, data: bytes) -> None:
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        path.chmod(0o444)


def _beside(path: Path, data: bytes, root: Path) -> Iterator[Path]:
    """Yield the files below `root` that a file names."""
    statements = b"\n".join(found.group() for found in _IMPORTS.finditer(data))
    words = {word.decode() for word in _WORD.findall(statements)}
    texts = [(one or other).decode(errors="replace") for one, other in _QUOTED.findall(data)]
    quoted = {text.removeprefix("./") for text in texts}
    for place in [one for one in path.parents if one.is_relative_to(root)]:
        yield from _modules(place, words, inner=place != root)
        there = _entries(place)
        for text in quoted:
            first = text.partition("/")[0]
            if first in there or first == "..":
                named = place / text
            elif f"{text}.py" in there:
                named = place / f"{text}.py"
            else:
                continue
            try:
                if named.is_file() and named.resolve().is_relative_to(root):
                    yield named.resolve()
            except (OSError, ValueError):
                continue  # no name of a file


def _modules(place: Path, words: set[str], inner: bool) -> Iterator[Path]:
    """Yield the named Python files in a folder, and in those of its subfolders that are named."""
    for name, is_folder in _entries(place).items():
        stem, suffix = os.path.splitext(name)
        if is_folder and name in words:
            yield from _modules(place / name, words, inner=True)
        elif suffix == ".py" and (stem in words or (inner and stem == "__init__")):
            yield place / name


def _entries(folder: Path) -> dict[str, bool]:
    """Return the names in a folder, each with whether it is a folder itself."""
    try:
        return {
            entry.name: entry.is_dir(follow_symlinks=False)
            for entry in sorted(os.scandir(folder), key=lambda entry: entry.name)
            if not entry.is_symlink()
        }
    except OSError:
        return {}
