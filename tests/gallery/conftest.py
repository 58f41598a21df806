import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

# The gallery is not part of the installed package.
sys.path.insert(0, str(Path(__file__).parents[2]))


@pytest.fixture(scope="module", autouse=True)
def _compiled_as_users_compile() -> Iterator[None]:
    """Prove these kernels as they ship, vectorised; other tests compile for a moment's run."""
    with pytest.MonkeyPatch.context() as patch:
        if os.environ["CXXFLAGS"] == "-O1":
            patch.delenv("CXXFLAGS")
        yield
