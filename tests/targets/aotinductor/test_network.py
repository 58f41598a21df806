"""A whole network with a dynamic number of points, from Python and from C++."""

from __future__ import annotations

import subprocess
from pathlib import Path

import torch

from examples.bev_network.network import BevNetwork, dynamic_shapes
from examples.bev_network.scenes import draw_scene
from opsmith import targets


def test_the_bird_s_eye_view_network_computes_the_same_everywhere(
    runner: Path, tmp_path: Path
) -> None:
    torch.manual_seed(0)
    network = BevNetwork().eval()
    artifact = targets.export(
        network,
        draw_scene(0).inputs,
        target="aotinductor",
        out=tmp_path / "artifact",
        dynamic_shapes=dynamic_shapes(),
        verify=False,
    )
    (use,) = artifact.manifest.operators
    assert (use.name, use.note) == ("bev::bev_pool_v2", "called directly")
    loaded = targets.load(artifact.folder)
    points = set()
    for seed in (1, 2, 3):
        inputs = draw_scene(seed).inputs
        points.add(len(inputs[1]))
        with torch.no_grad():
            wanted = network(*inputs)
        torch.testing.assert_close(loaded(*inputs), wanted, rtol=1e-4, atol=1e-5)
        torch.save(tuple(inputs), tmp_path / "in.pt")
        command = [runner, artifact.folder, tmp_path / "in.pt", "--output", tmp_path / "out.pt"]
        subprocess.run(command, env={}, check=True)
        (got,) = torch.load(tmp_path / "out.pt", weights_only=True)
        torch.testing.assert_close(got, wanted, rtol=1e-4, atol=1e-5)
    assert len(points) == 3
