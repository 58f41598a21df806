"""torchvision's own operator, adopted: models that call it export in forms that one can choose.

Import this beside torchvision. By itself a call becomes ONNX's ``DeformConv``; in the inline form
it becomes a call of `deform_conv2d`, and so this gallery's kernel in a library:
``form={"torchvision::deform_conv2d": "inline", "vision::deform_conv2d": "library"}``.
"""

from typing import Any

from jaxtyping import Float
from torch import Tensor

import opsmith

from .deform_conv2d import deform_conv2d


@opsmith.adopt("torchvision::deform_conv2d", where=("M % groups == 0",))
def torchvision_deform_conv2d(
    input: Float[Tensor, "N {groups}*Cg H W"],
    weight: Float[Tensor, "M Cg kH kW"],
    offset: Float[Tensor, "N 2*{offset_groups}*kH*kW OH OW"],
    mask: Float[Tensor, "N ..."],
    bias: Float[Tensor, "M"],
    stride_h: int,
    stride_w: int,
    pad_h: int,
    pad_w: int,
    dilation_h: int,
    dilation_w: int,
    groups: int,
    offset_groups: int,
    use_mask: bool,
) -> Float[Tensor, "N M OH OW"]:
    """Convolve, each tap sampling the input where an offset moves it; see `deform_conv2d`."""
    return deform_conv2d(
        input,
        offset,
        weight,
        bias,
        (stride_h, stride_w),
        (pad_h, pad_w),
        (dilation_h, dilation_w),
        mask if use_mask else None,
    )


@torchvision_deform_conv2d.register_onnx(opset=19)
def _onnx(
    op: Any,
    input: Any,
    weight: Any,
    offset: Any,
    mask: Any,
    bias: Any,
    stride_h: int,
    stride_w: int,
    pad_h: int,
    pad_w: int,
    dilation_h: int,
    dilation_w: int,
    groups: int,
    offset_groups: int,
    use_mask: bool,
) -> Any:
    return op.DeformConv(
        input,
        weight,
        offset,
        bias,
        mask if use_mask else None,
        kernel_shape=[op.size(weight, 2), op.size(weight, 3)],
        strides=(stride_h, stride_w),
        pads=(pad_h, pad_w, pad_h, pad_w),
        dilations=(dilation_h, dilation_w),
        group=groups,
        offset_group=offset_groups,
    )
