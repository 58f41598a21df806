"""The two models that the tests share."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import aoti_operators as ops
import torch
from torch import Tensor, nn

from opsmith import targets


class Everything(nn.Module):
    """Calls operators with every kind of argument."""

    def forward(
        self, x: Tensor, bias: Tensor, total: Tensor, rows: Tensor, y: Tensor
    ) -> dict[str, Tensor]:
        n = x.shape[0]
        full, wide = ops.everything(
            x, bias, [x, x + 1], 3, 0.5, True, "mode", (2, n), [1.0, 2.5], [True, False, True],
            0.25, 7, True, "label", [1, n], (0.5, 0.125), [x], last=2.0,
        )  # fmt: skip
        bare, _ = ops.everything(x, None, [], 3, float("inf"), False, "", (2, 5), [], [])
        ops.accumulate(total, x[:, 0])
        return {
            "full": full,
            "wide": wide,
            "bare": bare,
            "positives": ops.positives(y),
            "picked": ops.pick(x, rows),
            "summed": ops.cumsum(y, 'a "quoted" \\ \n text'),
            "inlined": ops.python_only(y),
            "selected": y[2 * rows],
        }


class Net(nn.Module):
    """A small network with weights and a custom operator; takes images channels last."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.conv = nn.Conv2d(3, 4, 3, padding=1)
        self.head = nn.Linear(4, 2)

    def forward(self, image: Tensor, scale: Tensor, pairs: Tensor) -> tuple[Tensor, Tensor]:
        features = torch.relu(self.conv(image)).mean((2, 3))
        picked = ops.pick(features * scale[:, None], torch.zeros_like(scale, dtype=torch.int64))
        return self.head(picked), pairs.sum()


def everything_args() -> tuple[Tensor, ...]:
    """Example arguments of `Everything`."""
    generator = torch.Generator().manual_seed(0)
    x, y = torch.randn(3, 4, generator=generator), torch.randn(9, generator=generator)
    return x, torch.ones(4), torch.arange(3.0), torch.tensor([2, 0, 1, 1]), y


def net_args(batch: int = 2) -> tuple[Tensor, ...]:
    """Example arguments of `Net`."""
    generator = torch.Generator().manual_seed(batch)
    image = torch.randn(batch, 3, 8, 8, generator=generator)
    return (
        image.contiguous(memory_format=torch.channels_last),
        torch.rand(batch, generator=generator),
        torch.rand(2 * batch, generator=generator),
    )


def export(model: nn.Module, args: tuple[Any, ...], out: Path, **options: Any) -> targets.Artifact:
    """Export without a word."""
    return targets.export(model.eval(), args, target="aotinductor", out=out, say=None, **options)
