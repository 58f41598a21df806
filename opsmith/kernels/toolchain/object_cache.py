"""Built files in the cache, identified by the files that their sources include.

Before a source is compiled, only the name of its folder is known: which files it includes, the
compiler tells. So a folder holds several variants, each with the digests of its included files.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from opsmith.system.files import digest, read_json, write_atomically
from opsmith.untyped import Json

_LIST = "variants.json"
_MOST = 16


@dataclass(frozen=True)
class BuiltFile:
    """A built file.

    Attributes:
        included: the digests of the files that its sources included, by path.
    """

    path: Path
    included: Mapping[str, str | None]


def find(folder: Path) -> BuiltFile | None:
    """Return the intact variant in `folder` whose included files have not changed, else `None`."""
    seen: dict[str, str | None] = {}
    for known in _known(folder):
        for path in known["included"]:
            if path not in seen:
                seen[path] = digest(Path(path))
        if all(seen[path] == value for path, value in known["included"].items()):
            built = folder / known["file"]
            if digest(built) == known["sha256"]:
                return BuiltFile(built, known["included"])
    return None


def store(
    folder: Path, name: str, data: bytes, included: Mapping[str, str | None], what: str
) -> BuiltFile:
    """Store a built file as the latest variant.

    Args:
        folder: the folder that `find` searches; no other process may write into it meanwhile.
        data: the content of the file.
        included: see `BuiltFile`.
        what: a description of the file, for people who read the list.
    """
    sha256 = hashlib.sha256(data).hexdigest()
    # The folder is named after the content: a library that is loaded is never overwritten.
    relative = f"{sha256[:16]}/{name}"
    write_atomically(folder / relative, data)
    added = {"what": what, "file": relative, "sha256": sha256, "included": dict(included)}
    write_atomically(folder / _LIST, json.dumps([added, *_known(folder)][:_MOST], indent=1))
    return BuiltFile(folder / relative, included)


def included_by(path: Path) -> list[Path]:
    """Return the files that the sources of a variant included, given the variant's path."""
    folder = path.parent.parent
    relative = str(path.relative_to(folder))
    names = next((one["included"] for one in _known(folder) if one["file"] == relative), ())
    return [Path(name) for name in names]


def _known(folder: Path) -> list[dict[str, Json]]:
    """Return the entries of the list, without malformed ones that another program wrote."""
    known = read_json(folder / _LIST, list) or []
    return [one for one in known if _is_entry(one)]


def _is_entry(one: object) -> bool:
    return (
        isinstance(one, dict)
        and all(isinstance(one.get(name), str) for name in ("what", "file", "sha256"))
        and isinstance(one.get("included"), dict)
    )
