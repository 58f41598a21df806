"""Raise what failed in a runtime as the class that PyTorch raises for the model itself."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from opsmith.errors import ArgumentError, OutOfBoundsError
from opsmith.targets.exporting.artifact import Artifact

#: The words of Inductor and of ONNX Runtime for an index outside of the tensor that it selects
#: from: runtimes raise every failure as one class.
_OUT_OF_BOUNDS = re.compile("invalid indice|out of (data )?bounds|within bounds", re.IGNORECASE)


@contextmanager
def call_errors(artifact: Artifact) -> Iterator[None]:
    """Raise a runtime's ``RuntimeError`` as the class that its words tell of.

    Raises:
        ArgumentError: an operator of the model refused an argument.
        OutOfBoundsError: an index selects what is not there; an ``IndexError``, as in PyTorch.
    """
    try:
        yield
    except (ArgumentError, IndexError):
        raise
    except RuntimeError as error:
        words = str(error)
        if any(f"{use.name}: argument '" in words for use in artifact.manifest.operators):
            raise ArgumentError(words) from error
        if _OUT_OF_BOUNDS.search(words):
            raise OutOfBoundsError(f"{artifact.folder}: {words}") from error
        raise
