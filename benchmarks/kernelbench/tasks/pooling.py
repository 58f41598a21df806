"""Largest values and means of windows."""

from jaxtyping import Float32
from stated import task
from torch import Tensor
from torch.nn import functional


@task(41, x=(2, 3, 40))
def max_pool1d(x: Float32[Tensor, "N C L"]) -> Float32[Tensor, "N C L-2"]:
    return functional.max_pool1d(x, 3, 1)


@task(42, x=(2, 3, 10, 12))
def max_pool2d(x: Float32[Tensor, "N C H W"]) -> Float32[Tensor, "N C H//2 W//2"]:
    return functional.max_pool2d(x, 2)


@task(43, x=(2, 3, 6, 8, 6))
def max_pool3d(x: Float32[Tensor, "N C D H W"]) -> Float32[Tensor, "N C D//2 H//2 W//2"]:
    return functional.max_pool3d(x, 2)


@task(44, x=(2, 3, 40))
def avg_pool1d(x: Float32[Tensor, "N C L"]) -> Float32[Tensor, "N C L"]:
    return functional.avg_pool1d(x, 3, 1, 1)


@task(45, x=(2, 3, 10, 12))
def avg_pool2d(x: Float32[Tensor, "N C H W"]) -> Float32[Tensor, "N C H//2 W//2"]:
    return functional.avg_pool2d(x, 2)


@task(46, x=(2, 3, 6, 8, 6))
def avg_pool3d(x: Float32[Tensor, "N C D H W"]) -> Float32[Tensor, "N C D//2 H//2 W//2"]:
    return functional.avg_pool3d(x, 2)
