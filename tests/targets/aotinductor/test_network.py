"""A whole network with a dynamic number of points, from Python and from C++."""

from __future__ import annotations

from pathlib import Path

import pytest

from examples.bev_network.aotinductor import ALLOWED, run
from examples.bev_network.scenes import draw_scene
from opsmith.targets import Artifact


@pytest.mark.long
def test_the_bird_s_eye_view_network_computes_the_same_everywhere(tmp_path: Path) -> None:
    scenes = [draw_scene(seed) for seed in (1, 2, 3)]
    assert len({len(scene.ranks.ranks_depth) for scene in scenes}) == 3
    assert run(tmp_path / "artifact", 1, scenes) <= ALLOWED
    (use,) = Artifact.open(tmp_path / "artifact").manifest.operators
    assert (use.name, use.note) == ("bev::bev_pool_v2", "called directly")
