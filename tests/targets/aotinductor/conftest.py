"""The artifacts that these tests share: each is compiled once, and remembered between runs.

Compiling takes ten seconds and more, so the cache is the user's own, not one of this run.
"""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from aoti_models import Everything, Net, everything_args, net_args

from opsmith import targets
from opsmith.targets.aotinductor.runtime import build_runner


@pytest.fixture(scope="session")
def everything(tmp_path_factory: pytest.TempPathFactory) -> targets.Artifact:
    """`Everything`, exported."""
    rows, points = torch.export.Dim("rows", min=1), torch.export.Dim("points", min=1)
    n = torch.export.Dim("n", min=1)
    return targets.export(
        Everything().eval(),
        everything_args(),
        target="aotinductor",
        out=tmp_path_factory.mktemp("everything") / "artifact",
        dynamic_shapes=({0: n}, None, {0: n}, {0: rows}, {0: 2 * points + 1}),
        form={"aoti_test::python_only": "inline"},
    )


@pytest.fixture(scope="session")
def net(tmp_path_factory: pytest.TempPathFactory) -> targets.Artifact:
    """`Net`, exported with batch 2 for every batch up to 64."""
    batch = torch.export.Dim("batch", min=1, max=64)
    return targets.export(
        Net().eval(),
        net_args(),
        target="aotinductor",
        out=tmp_path_factory.mktemp("net") / "artifact",
        dynamic_shapes=({0: batch}, {0: batch}, {0: 2 * batch}),
    )


@pytest.fixture(scope="session")
def runner() -> Path:
    """The built C++ program."""
    return build_runner()
