"""What `make gpu` runs, as far as it shows without a GPU."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch

import opsmith
from gallery.bev_pool_v2.bev_pool_v2 import bev_pool_v2, bev_pool_v2_backward
from gallery.bev_pool_v2.geometry import Grid
from gallery.bev_pool_v2.inputs import camera_case

GPU = Path(__file__).parents[2] / "benchmarks" / "gpu"


@pytest.mark.slow
@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu_it_says_so_and_what_to_do() -> None:
    run = subprocess.run([sys.executable, GPU / "run.py"], capture_output=True, text=True)
    assert run.returncode == 2
    assert run.stdout == ""
    assert run.stderr.startswith("make gpu cannot run here:\n  no GPU is to be seen (PyTorch ")
    assert "run this where nvidia-smi lists one" in run.stderr


@pytest.mark.long
def test_the_published_algorithm_gives_what_the_gallery_does(monkeypatch) -> None:
    monkeypatch.syspath_prepend(str(GPU))
    import published

    grid = Grid((-51.2, -51.2, -5.0), (12.8, 12.8, 8.0), (8, 8, 1))
    case = camera_case(feature_size=(2, 3), bins=7, channels=5, grid=grid)
    with opsmith.emulate("cuda"):
        given = published.forward(case)
        torch.testing.assert_close(given, bev_pool_v2.reference(**case))
        grad = torch.randn_like(given)
        rest = {name: value for name, value in case.items() if name != "bev_size"}
        right = bev_pool_v2_backward.reference(grad, **rest)
        torch.testing.assert_close(published.backward(case, grad), right)
