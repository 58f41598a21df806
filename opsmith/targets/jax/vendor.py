"""Copy the modules of opsmith that an artifact carries: ``package``, and the modules it imports.

They import only Python's own modules, NumPy and JAX.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path

from opsmith.targets.exporting.packages import vendoring

_OWN = "targets.jax.package"
_MOVED = {_OWN: "jax"}

place_of = partial(vendoring.place_of, moved=_MOVED)


def modules() -> dict[str, str]:
    """Return each module's text by its path within the artifact's package."""
    own = sorted(Path(__file__).with_name("package").glob("[!_]*.py"))
    return vendoring.modules([f"{_OWN}.{path.stem}" for path in own], moved=_MOVED)
