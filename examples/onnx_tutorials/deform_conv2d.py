"""A block with deformable convolution, as ONNX's ``DeformConv`` and as the gallery's own kernel.

python examples/onnx_tutorials/deform_conv2d.py
"""

import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import torch
from torch import Tensor, nn

import opsmith
from gallery.deform_conv2d.module import DeformConv2d


class Block(nn.Module):
    """A convolution that says where to sample, and one that samples there (DCN v2).

    Args:
        channels: of the images, in and out.
    """

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.where = nn.Conv2d(channels, 3 * 9, 3, padding=1)
        self.sample = DeformConv2d(channels, channels, 3, padding=1)
        self.norm = nn.BatchNorm2d(channels)

    def forward(self, x: Tensor) -> Tensor:
        """Give the block's output, as large as its input."""
        offset, mask = self.where(x).split((18, 9), 1)
        return torch.relu(self.norm(self.sample(x, offset, mask.sigmoid())) + x)


def example() -> tuple[nn.Module, tuple[Tensor, ...]]:
    """For ``opsmith export examples/onnx_tutorials/deform_conv2d.py:example``."""
    torch.manual_seed(0)
    return nn.Sequential(Block(16), Block(16)).eval(), (torch.randn(2, 16, 24, 24),)


if __name__ == "__main__":
    for form in ("standard", "library"):
        with tempfile.TemporaryDirectory() as folder:
            print(f"\nIn the {form} form:")
            opsmith.export(
                *example(),
                target="onnxruntime",
                out=Path(folder) / "dist",
                dynamic_shapes=({0: torch.export.Dim("batch")},),
                form=form,
            )
