"""Replace opsmith's ``gate_libraries`` in an installed package: load gates, compile nothing.

Gates work with one PyTorch release only. The package contains gates for the releases that its wheel
was built for; with another, calls that may need a derivative pass through Python, with the same
results.
"""

from __future__ import annotations

import ctypes
import functools
import platform
import warnings
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

import torch

from opsmith.kernels.libraries import prebuilt

_FOLDER = Path(__file__).parents[3]


def load(name: str) -> ctypes.CDLL | None:
    """Return the library of the gates for this PyTorch, if the package has one that loads."""
    del name  # one library contains all gates
    return _found()[0]


def loaded_beside(loaders: Sequence[Callable[[], object]]) -> AbstractContextManager[None]:
    """Do nothing: the gates need no building, so they are loaded when first needed."""
    del loaders
    return nullcontext()


def say() -> str:
    """Describe in a sentence how calls outside ``torch.inference_mode`` run here."""
    return _found()[1]


@functools.cache
def _found() -> tuple[ctypes.CDLL | None, str]:
    here = prebuilt.release_of(torch.__version__), platform.machine()
    gates = prebuilt.gates(_FOLDER)
    fit = [one for one in gates if (one["torch"], one["machine"]) == here]
    if not fit or not torch.compiled_with_cxx11_abi():
        there = ", ".join(f"{one['torch']} ({one['machine']})" for one in gates) or "no PyTorch"
        return None, (
            f"this is PyTorch {torch.__version__} ({here[1]}), and the package has gates for "
            f"{there}: calls pass through Python"
        )
    try:
        library = prebuilt.open_gates(_FOLDER, fit[0])
        return library, f"calls run in C++, by gates for PyTorch {here[0]}"
    except OSError as error:
        problem = f"the gates for PyTorch {here[0]} do not load, so calls pass through Python"
        warnings.warn(f"{_FOLDER.parent.name}: {problem}: {error}", RuntimeWarning, stacklevel=2)
        return None, f"{problem}: {error}"
