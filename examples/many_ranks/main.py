"""Train the bird's-eye-view network on several ranks, and go on after a rank was lost.

torchrun --nproc-per-node 2 examples/many_ranks/main.py --way fsdp
python examples/many_ranks/main.py     # one process, to compare with
"""

import argparse
import os
import signal
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as checkpoint
from torch import Tensor, nn
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
    get_state_dict,
    set_state_dict,
)

from examples.bev_network.network import BevNetwork
from examples.bev_network.scenes import Scene, draw_scene
from examples.many_ranks.parallel import WAYS, parallelise

#: Scenes of one step; all ranks together see each of them once.
BATCH = 4
RATE = 0.05


def train(
    way: str,
    steps: int,
    folder: Path | None = None,
    every: int = 5,
    kill: int | None = None,
    dtype: torch.dtype = torch.float32,
) -> dict[str, Any]:
    """Train, from the last save in a folder on.

    Args:
        way: how ranks share the work; empty for one process.
        steps: the number of steps, those before the last save included.
        folder: where to save, and to look for a save.
        every: the number of steps between saves.
        kill: the step before which the last rank ends itself, unless it was restarted.
        dtype: of the weights and the scenes.

    Returns:
        The loss of each step that was taken, and the trained weights, whole.
    """
    torch.manual_seed(0)
    network = BevNetwork().to(dtype)
    model, mesh = parallelise(network, way) if way else (network, None)
    optimiser = torch.optim.SGD(model.parameters(), RATE, momentum=0.9, foreach=False)
    loss_of = nn.BCEWithLogitsLoss(pos_weight=torch.tensor(20.0))
    scenes = [draw_scene(seed) for seed in range(2 * BATCH)]
    place, share = (mesh["scenes"].get_local_rank(), mesh["scenes"].size()) if mesh else (0, 1)
    first = load(folder, model, optimiser)
    losses = {}
    for step in range(first, steps):
        if step == kill and not attempt() and dist.get_rank() == dist.get_world_size() - 1:
            os.kill(os.getpid(), signal.SIGKILL)
        own = [scenes[(BATCH * step + n) % len(scenes)] for n in range(place, BATCH, share)]
        optimiser.zero_grad()
        loss = torch.stack([score(model, scene, loss_of) for scene in own]).mean()
        loss.backward()
        optimiser.step()
        losses[step] = mean(loss.detach(), mesh)
        if folder is not None and (step + 1) % every == 0:
            save(folder, step + 1, model, optimiser)
    options = StateDictOptions(full_state_dict=True)
    weights = get_model_state_dict(model, options=options)
    # The statistics that batches of other scenes leave are no weights.
    trained = {name: weights[name] for name, _ in BevNetwork().named_parameters() if weights}
    return {"losses": losses, "weights": trained}


def score(model: nn.Module, scene: Scene, loss_of: nn.Module) -> Tensor:
    """Return the loss of one scene."""
    images, *ranks = scene.inputs
    dtype = next(model.parameters()).dtype
    return loss_of(model(images.to(dtype), *ranks), scene.target.to(dtype))


def mean(loss: Tensor, mesh: Any) -> float:
    """Return the mean loss over the ranks that share the scenes."""
    if mesh is None:
        return float(loss)
    dist.all_reduce(loss, group=mesh["scenes"].get_group())
    return float(loss) / mesh["scenes"].size()


def attempt() -> int:
    """Return how often torchrun started this process again, after a rank was lost."""
    return int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0"))


def meet() -> None:
    """Join the other ranks.

    torchrun's store outlives an attempt, and keeps the addresses of the ranks that are gone. Under
    a prefix of its own, no attempt reads those of an earlier one.
    """
    rank, count = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    port = int(os.environ["MASTER_PORT"])
    kept = dist.TCPStore(os.environ["MASTER_ADDR"], port, world_size=count, is_master=False)
    store = dist.PrefixStore(f"attempt {attempt()}", kept)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=count)


def save(folder: Path, step: int, model: nn.Module, optimiser: torch.optim.Optimizer) -> None:
    """Save what training goes on from; a save that was not finished does not count."""
    weights, state = get_state_dict(model, optimiser)
    checkpoint.save({"model": weights, "optimiser": state}, checkpoint_id=folder / str(step))
    if not dist.is_initialized() or dist.get_rank() == 0:
        part = folder / "part"
        part.write_text(str(step))
        part.replace(folder / "latest")


def load(folder: Path | None, model: nn.Module, optimiser: torch.optim.Optimizer) -> int:
    """Load the last save, on however many ranks it was made; return the number of its steps."""
    if folder is None or not (folder / "latest").exists():
        return 0
    step = int((folder / "latest").read_text())
    weights, state = get_state_dict(model, optimiser)
    found = {"model": weights, "optimiser": state}
    checkpoint.load(found, checkpoint_id=folder / str(step))
    set_state_dict(
        model, optimiser, model_state_dict=found["model"], optim_state_dict=found["optimiser"]
    )
    return step


def main() -> None:
    """Read the command line, train, print losses."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--way", choices=WAYS, default="data")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--out", type=Path, help="a folder for saves, and to go on from")
    parser.add_argument("--every", type=int, default=5, help="steps between saves")
    parser.add_argument("--kill", type=int, help="the step before which a rank is killed, once")
    parser.add_argument("--result", type=Path, help="a file for losses and weights")
    parser.add_argument("--double", action="store_true", help="compute in double precision")
    asked = parser.parse_args()
    many = "RANK" in os.environ
    if many:
        meet()
    if asked.out is not None:
        asked.out.mkdir(parents=True, exist_ok=True)
    way = asked.way if many else ""
    dtype = torch.float64 if asked.double else torch.float32
    found = train(way, asked.steps, asked.out, asked.every, asked.kill, dtype)
    if not many or dist.get_rank() == 0:
        for step, loss in found["losses"].items():
            print(f"step {step:3d}   loss {loss:.6f}")
        if asked.result is not None:
            torch.save(found, asked.result)
    if many:
        dist.barrier()  # a rank that leaves early would abort the others
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
