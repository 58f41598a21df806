"""Precompile opsmith's own headers after several sources shared the same flags.

Compiling a kernel spends most of its time on ``opsmith/kernel.h`` and the headers of PyTorch and
the standard library that it includes, and compiling an adapter half of it on its runtime's header.
Precompiling them takes as long as it saves in four sources, and 80 to 120 MB of disk. So it is done
after the first few sources that are compiled with the same flags, and for a few sets of flags only.

The precompiled header is included before the first line of a source, so it is the header that the
source begins with. Sources with different include folders share a precompiled header, as
long as these folders have no file that would be included in place of another.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from opsmith.kernels.toolchain import units
from opsmith.kernels.toolchain.cmake import RELEASE, options_of
from opsmith.kernels.toolchain.compilers import Toolset
from opsmith.kernels.toolchain.units import Unit
from opsmith.system.files import cache_folder, digest, key_of, once, write_atomically
from opsmith.system.progress import run
from opsmith.system.scratch import scratch_folder

_log = logging.getLogger("opsmith")

#: The number of sources compiled with the same flags before their header is precompiled.
AFTER = 4
#: The number of precompiled headers that are kept.
MOST = 8
_OURS = ("opsmith/", "emulated/")
#: The header of arguments that opsmith generates begins with this, which begins with a kernel's.
_ARGUMENTS = "opsmith/detail/args.h"
_BEGINS = re.compile(
    r"""(?: \s | //[^\n]*(?<!\\)\n | /\*(?:[^*]|\*(?!/))*\*/ | \#pragma\ once\n )*
        \#include\s*[<"]([^>"]+)[>"]""",
    re.VERBOSE,
)
#: Options that include a file first, or that change the language of the source.
_BEFORE = ("-include", "-imacros", "-x")


@dataclass(frozen=True)
class Precompiled:
    """A precompiled header.

    Attributes:
        header: the file to include first; the compiler finds the precompiled file beside it.
        included: the precompiled files that belong neither to the system nor to PyTorch.
    """

    header: Path
    included: tuple[Path, ...]
    files: tuple[Path, ...]

    def is_same_with(self, include_dirs: Sequence[Path]) -> bool:
        """Return whether a compiler with these further include folders includes the same files."""
        for folder in include_dirs:
            try:
                own = {path.name for path in folder.iterdir()}
            except OSError:
                continue
            for path in self.files:
                parts = path.parts
                for first, name in enumerate(parts):
                    if name in own and folder.joinpath(*parts[first:]).is_file():
                        return False
        return True


def folder() -> Path:
    """Return the folder of the precompiled headers."""
    return cache_folder() / "precompiled"


def precompiled(unit: Unit, tools: Toolset, after: int | None = None) -> Precompiled | None:
    """Write a unit that is about to be compiled, and return its precompiled header.

    Args:
        after: the header is due once more units than this were compiled; by default `AFTER`.

    Returns:
        `None` where the unit begins with no header of opsmith's, or its compiler is not GCC, or too
        few units have been compiled with the same flags so far, or its include folders have other
        files of the same names.
    """
    unit.write()
    header = _header_of(unit, tools)
    if header is None:
        return None
    owners = _owners(unit, header)
    words = options_of(replace(unit, include_dirs=owners), tools)
    place = folder() / _key(header, words, owners, tools)
    known = _find(place)
    if known is None:
        place.mkdir(parents=True, exist_ok=True)
        with (place / "compiled").open("ab") as compiled:
            compiled.write(b".")
            if compiled.tell() <= (AFTER if after is None else after):
                return None
        known = once(place, lambda: _find(place), lambda: _make(place, header, words, tools))
    others = [path for path in unit.include_dirs if path not in owners]
    if known is None or not known.is_same_with(others):
        return None
    with contextlib.suppress(OSError):
        os.utime(_built(place))
    return known


def _header_of(unit: Unit, tools: Toolset) -> str | None:
    others = unit.language or unit.compiler or unit.full_torch or tools.compiler.launcher
    # Only GCC silently skips a precompiled header that does not fit.
    if others or not tools.compiler.is_gcc:
        return None
    if any(flag.startswith(_BEFORE) for flag in (*tools.compiler.flags, *unit.flags)):
        return None
    generated = unit.generated.render()
    try:
        text = unit.path.read_text(errors="replace")
    except OSError:
        return None
    header = first_header(text, generated)
    if header is None:
        return None
    ours = (units.INCLUDE, *_owners(unit, header))
    shadows = any((folder / name).exists() for folder in ours for name in generated)
    there = any((folder / header).is_file() for folder in ours)
    return header if there and not shadows else None


def _owners(unit: Unit, header: str) -> tuple[Path, ...]:
    """Return the unit's include folders that have the header which it begins with."""
    return tuple(path for path in unit.include_dirs if (path / header).is_file())


def first_header(text: str, generated: Mapping[str, str]) -> str | None:
    """Return the header of opsmith's that a source includes before anything else, if it does.

    Args:
        generated: the text of each generated file, by name; one of them may include the header.
    """
    for _ in range(len(generated) + 1):
        first = _BEGINS.match(text)
        if first is None:
            return None
        name = first[1]
        if name not in generated:
            header = "opsmith/kernel.h" if name == _ARGUMENTS else name
            return header if header.startswith(_OURS) else None
        text = generated[name]
    return None


def _key(header: str, words: Sequence[str], owners: Sequence[Path], tools: Toolset) -> str:
    headers = [
        {str(path.relative_to(own)): digest(path) for path in sorted(own.rglob("*.h"))}
        for own in (units.INCLUDE, *owners)
    ]
    facts = tools.facts(full_torch=True)
    return key_of([header, list(words), headers, facts, digest(Path(__file__))])


def _built(place: Path) -> Path:
    return place / "kernel.h.gch"


def _find(place: Path) -> Precompiled | None:
    try:
        known = json.loads((place / "included.json").read_text())
        included, files = (tuple(map(Path, known[name])) for name in ("included", "files"))
    except (OSError, ValueError, KeyError, TypeError):
        return None
    if not _built(place).is_file():
        return None
    return Precompiled(place / "kernel.h", included, files)


def _make(place: Path, name: str, words: Sequence[str], tools: Toolset) -> Precompiled | None:
    header = place / "kernel.h"
    write_atomically(header, f"#include <{name}>\n")
    with scratch_folder("headers") as work:
        made, depends = work / "kernel.h.gch", work / "kernel.d"
        command = [
            *(tools.compiler.path, *RELEASE, *words, "-MD", "-MF", str(depends)),
            *("-x", "c++-header", str(header), "-o", str(made)),
        ]
        done = run(command, os.environ, f"precompiling {name}")
        if done.returncode != 0:
            # Compiling the source reports the same error, so only log it here.
            _log.debug("%s could not be precompiled:\n%s", name, done.stdout)
            (place / "compiled").unlink(missing_ok=True)
            return None
        files = sorted({path for path in _files(depends.read_text()) if path != header})
        found = {
            "included": [str(path) for path in files if not tools.owns(path)],
            "files": [str(path) for path in files],
        }
        write_atomically(_built(place), made.read_bytes())
        write_atomically(place / "included.json", json.dumps(found))
    _keep_few()
    return _find(place)


def _files(rule: str) -> list[Path]:
    """Return the files that a rule of a Makefile depends on."""
    _, _, after = rule.replace("\\\n", " ").partition(": ")
    words = re.split(r"(?<!\\)\s+", after.strip())
    return [Path(os.path.normpath(word.replace("\\ ", " "))) for word in words]


def _keep_few() -> None:
    """Remove the least recently used precompiled headers."""
    built = []
    for place in folder().iterdir():
        with contextlib.suppress(OSError):
            built.append((_built(place).stat().st_mtime_ns, place))
    for _, place in sorted(built, reverse=True)[MOST:]:
        # The header itself stays: a running compiler may be about to read its text.
        for gone in (_built(place), place / "included.json", place / "compiled"):
            gone.unlink(missing_ok=True)
