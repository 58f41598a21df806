"""A ``torch.autograd.Function`` with a ``symbolic``, which today's exporter ignores.

It looks through the Function at what ``forward`` does, and fails where that is an extension's
function. Made into an operator in one call, ``symbolic`` counts again, for both exporters, and the
model stays as it is.

    python examples/onnx_tutorials/my_add.py
"""

import sys
import tempfile
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import torch
from torch import Tensor, nn

import opsmith
from gallery.my_add.my_add import my_add as extension


class MyAdd(torch.autograd.Function):
    """2a + b, by a function of a C++ extension, as in many tutorials."""

    @staticmethod
    def forward(ctx: Any, a: Tensor, b: Tensor) -> Tensor:
        """Call the extension."""
        return extension(a, b)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor]:
        """Give the gradients of a and b."""
        return 2 * grad, grad

    @staticmethod
    def symbolic(g: Any, a: Any, b: Any) -> Any:
        """Make two standard nodes."""
        two = g.op("Constant", value_t=torch.tensor(2.0))
        return g.op("Add", g.op("Mul", two, a), b)


class Model(nn.Module):
    """What a model that uses it looks like."""

    def forward(self, a: Tensor, b: Tensor) -> Tensor:
        """Give 2a + b, and the same again with it."""
        return MyAdd.apply(MyAdd.apply(a, b), b)


adopted = opsmith.adopt(MyAdd, "tutorial::adopted_my_add")


def example() -> tuple[nn.Module, tuple[Tensor, ...]]:
    """For ``opsmith export examples/onnx_tutorials/my_add.py:example``."""
    return Model(), (torch.randn(3, 4), torch.randn(3, 4))


if __name__ == "__main__":
    rows = {0: torch.export.Dim("rows")}
    for exporter in ("dynamo", "torchscript"):
        with tempfile.TemporaryDirectory() as folder:
            print(f"\nBy the {exporter} exporter:")
            opsmith.export(
                *example(),
                target="onnxruntime",
                out=Path(folder) / "dist",
                dynamic_shapes=(rows, rows),
                exporter=exporter,
            )
    a, b = (torch.randn(3, 4, requires_grad=True) for _ in range(2))
    Model()(a, b).sum().backward()
    assert a.grad is not None and b.grad is not None
    print(f"\nand it still trains: d/da is {a.grad[0, 0]:g}, d/db is {b.grad[0, 0]:g}")
