"""Note what no CUDA graph captures, with its line, unless the operator has PyTorch's tag."""

from pathlib import Path

import pytest
import torch
from jaxtyping import Float32
from torch import Tensor

import opsmith
from opsmith import checks

SOURCE = Path(__file__).with_name("graphs.cu")
UNLESS = "Unless the operator has tags=(torch.Tag.cudagraph_unsafe,), PyTorch tries to capture it"


def graphs(x: Float32[Tensor, "N"], how: int = 0) -> Float32[Tensor, "N"]:
    return 2 * x


@pytest.mark.slow
@pytest.mark.parametrize(
    ("how", "tags", "said"),
    [
        (0, (), []),
        (1, (), [f"no CUDA graph captures cudaMalloc, at {SOURCE}:14. {UNLESS}"]),
        (2, (), [f"no CUDA graph captures a wait for the device, at {SOURCE}:17. {UNLESS}"]),
        (2, (torch.Tag.cudagraph_unsafe,), []),
    ],
)
def test_what_a_graph_cannot_capture_is_noted(how, tags, said):
    operator = opsmith.op("cuda_graphs::graphs", tags=tags)(graphs)
    operator.register_kernel("cuda", source="graphs.cu")
    operator.register_cases(lambda dtype, seed: [{"x": torch.ones(200), "how": how}], only=True)
    report = checks.run(operator, select=["cuda-on-cpu"], isolate=False)
    (row,) = (row for row in report.rows if row.check == "cuda-on-cpu")
    assert row.status == "passed"
    assert [note for note in row.notes if "CUDA graph" in note] == said
