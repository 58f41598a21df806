"""Define how `opsmith check` runs operators in a Python module."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor

from opsmith.errors import CheckError
from opsmith.kernels import HOST
from opsmith.kernels.libraries.loaded_library import calls_in
from opsmith.operators import Operator
from opsmith.targets.exporting.conformance import OperatorProof
from opsmith.targets.exporting.loaded_artifact import LoadedOperators
from opsmith.targets.exporting.protocol import Route
from opsmith.targets.python import library


def _called(
    loaded: LoadedOperators, operator: Operator, arguments: Mapping[str, Any]
) -> Sequence[Tensor]:
    before = _calls(loaded, operator)
    results = loaded.runner.run(operator.name, arguments)
    if _calls(loaded, operator) != before + 1:
        raise CheckError("did not run the kernel")
    return results


def _calls(loaded: LoadedOperators, operator: Operator) -> int:
    """Return how often the kernel ran; its library counts the runs."""
    path = loaded.artifact.path(loaded.artifact.manifest.details["libraries"][operator.name])
    return calls_in(ctypes.CDLL(str(path)), operator.signature, HOST)


PROOFS: tuple[Route, ...] = (
    OperatorProof(
        name="python",
        summary="the function of the Python module gives right results",
        what="the Python module",
        obstacle=library.obstacle,
        run=_called,
        timed="python",
    ),
)
