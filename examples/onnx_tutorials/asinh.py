"""An operator that PyTorch and ONNX both have, and whose mapping one exporter lacks.

The TorchScript exporter says "Exporting the operator 'aten::asinh' to ONNX … is not supported".
Adopted, with one line that names ONNX's operator, it is.

    python examples/onnx_tutorials/asinh.py
"""

import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import torch
from jaxtyping import Float
from torch import Tensor, nn

import opsmith


@opsmith.adopt("aten::asinh")
def asinh(self: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
    """Give the inverse hyperbolic sine, from logarithm and root."""
    size = self.abs()
    return torch.sign(self) * torch.log1p(size + size * size / (1 + torch.sqrt(1 + size * size)))


asinh.register_onnx("Asinh", opset=9)


class Model(nn.Module):
    """What a model that uses it looks like: nothing in it is new."""

    def forward(self, x: Tensor) -> Tensor:
        """Give asinh(x)."""
        return torch.asinh(x)


def example() -> tuple[nn.Module, tuple[Tensor, ...]]:
    """For ``opsmith export examples/onnx_tutorials/asinh.py:example``."""
    return Model(), (torch.randn(2, 3),)


if __name__ == "__main__":
    for exporter in ("dynamo", "torchscript"):
        with tempfile.TemporaryDirectory() as folder:
            print(f"\nBy the {exporter} exporter:")
            opsmith.export(
                *example(),
                target="onnxruntime",
                out=Path(folder) / "dist",
                dynamic_shapes=({0: torch.export.Dim("rows")},),
                exporter=exporter,
            )
