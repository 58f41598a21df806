"""The cache of the other tests: it has the emulator's runtime, and the gate for autograd."""

from __future__ import annotations

from pathlib import Path

import pytest

from opsmith.kernels import cache_folder


@pytest.fixture(autouse=True, scope="module")
def cache() -> Path:
    """Build in the usual cache, in place of one of this run's own: 18 s of a processor less."""
    return cache_folder()
