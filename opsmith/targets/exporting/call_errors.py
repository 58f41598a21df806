"""Raise a runtime's failure as the class that PyTorch raises for the same failure of the model."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from opsmith.errors import ArgumentError, OutOfBoundsError
from opsmith.targets.exporting.artifact import Artifact

#: Messages of Inductor and of ONNX Runtime for an index out of bounds. Runtimes raise every failure
#: as one class, so only the message tells it apart.
_OUT_OF_BOUNDS = re.compile("invalid indice|out of (data )?bounds|within bounds", re.IGNORECASE)


@contextmanager
def call_errors(artifact: Artifact) -> Iterator[None]:
    """Translate a runtime's ``RuntimeError`` into the class that its message indicates."""
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
