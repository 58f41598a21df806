"""`examples/many_ranks`: training on real processes is that of one, also after one was lost."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from examples.bev_network.network import BevNetwork
from examples.bev_network.scenes import draw_scene
from examples.many_ranks.main import BATCH, train

REPOSITORY = Path(__file__).parents[1]


def on_ranks(count: int, folder: Path, *words: str, restarts: int = 0) -> dict[str, Any]:
    """Run the example on ranks, and return what the first one found."""
    result = folder / "result.pt"
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    command += ["--nproc-per-node", str(count), "--max-restarts", str(restarts)]
    command += [str(REPOSITORY / "examples/many_ranks/main.py"), "--double", *words]
    ran = subprocess.run([*command, "--result", result], capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    return torch.load(result)


def assert_same(found: dict[str, Any], alone: dict[str, Any]) -> None:
    for step, loss in found["losses"].items():
        assert loss == pytest.approx(alone["losses"][step], rel=1e-12)
    torch.testing.assert_close(found["weights"], alone["weights"], rtol=1e-10, atol=1e-12)


@pytest.mark.slow
def test_two_ranks_that_share_channels_train_as_one_process(tmp_path: Path) -> None:
    alone = train("", 2, dtype=torch.float64)
    assert_same(on_ranks(2, tmp_path, "--way", "tensor", "--steps", "2"), alone)


@pytest.mark.long
def test_a_rank_that_is_killed_costs_the_steps_since_the_last_save(tmp_path: Path) -> None:
    words = ["--way", "tensor", "--steps", "4", "--every", "2", "--kill", "3"]
    found = on_ranks(2, tmp_path, *words, "--out", str(tmp_path / "saves"), restarts=1)
    assert list(found["losses"]) == [2, 3]
    assert_same(found, train("", 4, dtype=torch.float64))


@pytest.mark.long  # tests/checks/catalogue/claims/test_sharding_row.py counts what a call sends
def test_a_step_on_two_ranks_sends_the_bytes_of_the_claims() -> None:
    seen: dict[str, int] = {}

    class Seen(BevNetwork):
        def pool(self, depth: Tensor, features: Tensor, *ranks: Tensor) -> Tensor:
            seen.update(depth=depth.numel(), features=features.numel())
            return super().pool(depth, features, *ranks)

    network, scene = Seen(), draw_scene(0)
    network.head[0][0].register_forward_hook(lambda *call: seen.update(sums=call[-1].numel()))
    network(*scene.inputs)
    # The claim `parallel_dims=("C",)` says that the call itself sends nothing, that the gradient of
    # `feat` is in parts, which are gathered, and that the gradient of `depth` is a sum over the
    # ranks. The convolution behind it adds up its results. A sum on two ranks sends all of it once.
    elements = BATCH * (seen["depth"] + seen["features"] // 2 + seen["sums"])
    # At the end the weights are made whole, half of which each rank has.
    elements += network.head[0][0].weight.numel() // 2
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    command += ["--nproc-per-node", "2", str(REPOSITORY / "tests/many_ranks_bytes.py")]
    ran = subprocess.run(command, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    assert f"sent {elements * torch.float64.itemsize}\n" in ran.stdout


@pytest.mark.long
def test_every_way_trains_as_one_process_and_saves_for_other_numbers_of_ranks(
    tmp_path: Path,
) -> None:
    alone = train("", 20, dtype=torch.float64)
    for ranks, way in ((2, "data"), (2, "fsdp"), (2, "tensor"), (4, "fsdp-tensor")):
        assert_same(on_ranks(ranks, tmp_path, "--way", way, "--steps", "20"), alone)
    saves = "--out", str(tmp_path / "saves")
    on_ranks(2, tmp_path, "--way", "fsdp", "--steps", "10", *saves)
    found = on_ranks(4, tmp_path, "--way", "fsdp-tensor", "--steps", "20", *saves)
    assert list(found["losses"]) == list(range(10, 20))
    assert_same(found, alone)
