"""Define how `opsmith check` runs operators in a Python module."""

from __future__ import annotations

from opsmith.targets.exporting.conformance import OperatorProof
from opsmith.targets.exporting.protocol import Route
from opsmith.targets.hosted.functions import called
from opsmith.targets.python import library

PROOFS: tuple[Route, ...] = (
    OperatorProof(
        name="python",
        summary="the function of the Python module gives right results",
        what="the Python module",
        obstacle=library.obstacle,
        run=called,
        timed="python",
    ),
)
