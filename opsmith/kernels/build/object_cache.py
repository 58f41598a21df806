"""Built files in the cache, of which the files that a source included decide which one is meant.

What is known before compiling is the name of a folder. Which files a source includes is known only
afterwards: so a folder holds several variants, each with the digests of what it included.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from opsmith.kernels.build.files import digest, read_json, write_atomically

_LIST = "variants.json"
_MOST = 16


@dataclass(frozen=True)
class Variant:
    """One built file.

    Attributes:
        path: where it is.
        included: the digests of the files that its sources included, by path.
    """

    path: Path
    included: Mapping[str, str | None]


def find(folder: Path) -> Variant | None:
    """The variant in `folder` whose included files are all as they were, if it is intact."""
    seen: dict[str, str | None] = {}
    for known in _known(folder):
        for path in known["included"]:
            if path not in seen:
                seen[path] = digest(Path(path))
        if all(seen[path] == value for path, value in known["included"].items()):
            built = folder / known["file"]
            if digest(built) == known["sha256"]:
                return Variant(built, known["included"])
    return None


def store(
    folder: Path, name: str, data: bytes, included: Mapping[str, str | None], what: str
) -> Variant:
    """Keep a built file as the latest variant.

    Args:
        folder: see `find`; nobody else writes into it meanwhile.
        name: of the file.
        data: its content.
        included: see `Variant`.
        what: what it is, for whoever reads the list.
    """
    sha256 = hashlib.sha256(data).hexdigest()
    # The folder is named after the content: a library that is loaded is never overwritten.
    relative = f"{sha256[:16]}/{name}"
    write_atomically(folder / relative, data)
    added = {"what": what, "file": relative, "sha256": sha256, "included": dict(included)}
    write_atomically(folder / _LIST, json.dumps([added, *_known(folder)][:_MOST], indent=1))
    return Variant(folder / relative, included)


def included_by(path: Path) -> list[Path]:
    """The files that the sources of a variant included, given where `store` put it."""
    folder = path.parent.parent
    relative = str(path.relative_to(folder))
    names = next((one["included"] for one in _known(folder) if one["file"] == relative), ())
    return [Path(name) for name in names]


def _known(folder: Path) -> list[dict[str, Any]]:
    """What the list says; what somebody else wrote into it is as if it were not there."""
    known = read_json(folder / _LIST, list) or []
    return [one for one in known if _is_entry(one)]


def _is_entry(one: Any) -> bool:
    return (
        isinstance(one, dict)
        and all(isinstance(one.get(name), str) for name in ("what", "file", "sha256"))
        and isinstance(one.get("included"), dict)
    )
