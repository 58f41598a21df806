"""Normalisations, over channels, groups, rows and all elements."""

import torch
from jaxtyping import Float32
from stated import task
from torch import Tensor
from torch.nn import functional

Images = Float32[Tensor, "N C H W"]
Weights = Float32[Tensor, "C"]


@task(33, x=(3, 4, 5, 6), weight=(4,), bias=(4,))
def batch_norm(x: Images, weight: Weights, bias: Weights) -> Images:
    centred = x - x.mean((0, 2, 3), keepdim=True)
    normalised = centred / torch.sqrt((centred**2).mean((0, 2, 3), keepdim=True) + 1e-5)
    return normalised * weight[:, None, None] + bias[:, None, None]


@task(34, x=(3, 4, 5, 6))
def instance_norm(x: Images) -> Images:
    return functional.instance_norm(x)


@task(35, x=(3, 8, 5, 6), weight=(8,), bias=(8,))
def group_norm(
    x: Float32[Tensor, "N 2*C H W"], weight: Float32[Tensor, "2*C"], bias: Float32[Tensor, "2*C"]
) -> Float32[Tensor, "N 2*C H W"]:
    # PyTorch folds weight and bias into a factor, so that an infinite weight gives NaN.
    return functional.group_norm(x, 2) * weight[:, None, None] + bias[:, None, None]


@task(36, x=(3, 8, 5, 6))
def rms_norm(x: Images) -> Images:
    return x / torch.sqrt((x**2).mean(1, keepdim=True) + 1e-5)


@task(37, x=(3, 4, 5, 6))
def frobenius_norm(x: Images) -> Images:
    return x / torch.linalg.vector_norm(x)


@task(38, x=(8, 90))
def l1_norm(x: Float32[Tensor, "N C"]) -> Float32[Tensor, "N C"]:
    return x / x.abs().mean(1, keepdim=True)


@task(39, x=(8, 90))
def l2_norm(x: Float32[Tensor, "N C"]) -> Float32[Tensor, "N C"]:
    return x / torch.linalg.vector_norm(x, dim=1, keepdim=True)


@task(40, x=(4, 3, 50), weight=(50,), bias=(50,))
def layer_norm(
    x: Float32[Tensor, "N M C"], weight: Weights, bias: Weights
) -> Float32[Tensor, "N M C"]:
    return functional.layer_norm(x, (x.shape[2],), weight, bias)
