"""A head with `rois` and `boxes`, whose columns hold images and classes, goes to ONNX Runtime."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import pytest
import torch
from jaxtyping import Float
from torch import Tensor

import opsmith
from opsmith import ArgumentError, Index

KERNEL = """
#include <opsmith/kernel.h>
#include "pooled.h"

template <typename T>
void pooled(const opsmith::Context&, const columns_exported::pooled_args<T>& a) {
  for (int64_t r = 0; r < a.R; ++r) {
    const auto image = static_cast<int64_t>(a.rois(r, 0));
    for (int64_t c = 0; c < a.C; ++c) a.out(r, c) = a.x(image, c) * (a.rois(r, 3) - a.rois(r, 1));
  }
}
OPSMITH_KERNEL(columns_exported, pooled, cpu, float)
"""


@opsmith.op("columns_exported::pooled")
def pooled(
    x: Float[Tensor, "N C"], rois: Annotated[Float[Tensor, "R 5"], Index("N", column=0)]
) -> Float[Tensor, "R C"]:
    return x[rois[:, 0].long()] * (rois[:, 3:4] - rois[:, 1:2])


@opsmith.op("columns_exported::weighed")
def weighed(
    boxes: Annotated[Float[Tensor, "B 6"], Index("K", column=5)], weight: Float[Tensor, "K"]
) -> Float[Tensor, "B 4"]:
    return boxes[:, :4] * weight[boxes[:, 5].long(), None]


class Head(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.rand(7))

    def forward(self, image: Tensor, rois: Tensor, boxes: Tensor) -> tuple[Tensor, Tensor]:
        return pooled(image.mean((2, 3)), rois), weighed(boxes, self.weight)


@pytest.mark.slow
def test_a_head_with_boxes_is_compared_on_every_sample_and_refuses_what_names_no_image(
    tmp_path: Path,
) -> None:
    (tmp_path / "pooled.cpp").write_text(KERNEL)
    pooled.register_kernel("cpu", source=tmp_path / "pooled.cpp")
    torch.manual_seed(0)
    rois, boxes = torch.rand(5, 5), torch.rand(4, 6)
    rois[:, 0] = torch.tensor([0, 1, 2, 1, 0])
    boxes[:, 5] = torch.tensor([6, 0, 3, 3])
    given = torch.randn(3, 4, 8, 8), rois, boxes
    sizes = [torch.export.Dim(name, min=1, max=64) for name in "NRB"]
    head = Head()
    artifact = opsmith.export(
        head,
        given,
        target="onnxruntime",
        out=tmp_path / "dist",
        form={pooled: "library", weighed: "inline"},
        dynamic_shapes=tuple({0: size} for size in sizes),
        say=None,
    )
    agreement = artifact.manifest.agreement
    assert agreement is not None
    # The example, its rows in other places, and three of four other sizes: 2 images lack the third.
    assert agreement.samples == 5
    model = opsmith.load(tmp_path / "dist")
    for found, right in zip(model(*given), head(*given), strict=True):
        torch.testing.assert_close(found, right)
    for wrong, said in ((3.0, "value 3.0"), (0.5, "value 0.5")):
        rois[1, 0] = wrong
        with pytest.raises(ArgumentError, match=f"'rois' has {said} at index \\(1, 0\\)"):
            model(*given)
