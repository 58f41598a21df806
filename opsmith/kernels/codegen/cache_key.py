"""The cache key of generated files, and of libraries built from them."""

from __future__ import annotations

import hashlib
from functools import cache
from pathlib import Path

from opsmith.signature.model import Signature
from opsmith.system.version import version


@cache
def _generator_key() -> str:
    """Return a digest of the code and the templates that generate files."""
    folder = Path(__file__).parent
    rooms = (folder, folder.parent, folder.parent / "toolchain")
    files = [file for room in rooms for file in sorted(room.glob("*.py"))]
    files += sorted((folder / "templates").glob("*.j2"))
    return hashlib.sha256(b"\0".join(file.read_bytes() for file in files)).hexdigest()


def generated_key(signature: Signature, *more: object) -> str:
    """Return a digest that changes whenever the files generated from `signature` would.

    Args:
        more: further values that the generated text depends on, compared by their ``repr``.
    """
    facts = [
        version(),
        _generator_key(),
        signature.qualname,
        repr(signature.parameters),
        repr(signature.results),
        repr(signature.data_dependent),
        repr(signature.where),
        *map(repr, more),
    ]
    return hashlib.sha256("\0".join(facts).encode()).hexdigest()
