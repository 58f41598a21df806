"""Put a built site beside those of other releases, with the list that Material's selector reads.

    python docs/site/versions.py FOLDER v0.2.0

copies ``build/site`` to ``FOLDER/0.2``, where patches of a release replace each other, and writes
``FOLDER/versions.json`` and a page that leads to the newest release. The selector asks for the
layout of mike, which itself needs MkDocs.
"""

from __future__ import annotations

import json
import re
import shutil
import sys
from pathlib import Path

_BUILT = Path(__file__).parents[2] / "build" / "site"
_TAG = re.compile(r"v(\d+)\.(\d+)\.\d+")
_FOLDER = re.compile(r"\d+\.\d+")
_REDIRECT = (
    '<!doctype html><meta charset="utf-8"><meta http-equiv="refresh" content="0; url={0}/">'
    '<a href="{0}/">opsmith {0}</a>\n'
)


def add(built: Path, folder: Path, tag: str) -> str:
    """Copy the site of a tag into `folder`, update the list, and return the version.

    Raises:
        ValueError: the tag is not of the form ``v1.2.3``.
    """
    found = _TAG.fullmatch(tag)
    if found is None:
        raise ValueError(f"the tag {tag!r} is no release; expected v1.2.3")
    version = ".".join(found.groups())
    target = folder / version
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(built, target)
    places = (place.name for place in folder.iterdir() if place.is_dir())
    versions = sorted(
        filter(_FOLDER.fullmatch, places), key=lambda name: [*map(int, name.split("."))]
    )
    newest = versions[-1]
    listed = [
        {"version": name, "title": name, "aliases": ["latest"] if name == newest else []}
        for name in reversed(versions)
    ]
    (folder / "versions.json").write_text(json.dumps(listed, indent=2) + "\n")
    (folder / "index.html").write_text(_REDIRECT.format(newest))
    return version


if __name__ == "__main__":
    where, of_tag = sys.argv[1:]
    print(f"{where}/{add(_BUILT, Path(where), of_tag)}")
