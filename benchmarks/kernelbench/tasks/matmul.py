"""Products of matrices and vectors, of many shapes."""

import torch
from jaxtyping import Float32
from stated import task
from torch import Tensor


@task(1, a=(24, 24), b=(24, 24))
def square_matmul(a: Float32[Tensor, "N N"], b: Float32[Tensor, "N N"]) -> Float32[Tensor, "N N"]:
    return a @ b


@task(2, a=(16, 48), b=(48, 24))
def matmul(a: Float32[Tensor, "M K"], b: Float32[Tensor, "K N"]) -> Float32[Tensor, "M N"]:
    return a @ b


@task(3, a=(4, 9, 13), b=(4, 13, 11))
def batched_matmul(
    a: Float32[Tensor, "B M K"], b: Float32[Tensor, "B K N"]
) -> Float32[Tensor, "B M N"]:
    return torch.bmm(a, b)


@task(4, a=(16, 600), b=(600, 1))
def matrix_vector(a: Float32[Tensor, "M K"], b: Float32[Tensor, "K 1"]) -> Float32[Tensor, "M 1"]:
    return a @ b


@task(5, a=(40, 60), s=3.14)
def matrix_scalar(a: Float32[Tensor, "M N"], s: float) -> Float32[Tensor, "M N"]:
    return a * s


@task(6, a=(4, 3000), b=(3000, 4))
def large_k(a: Float32[Tensor, "M K"], b: Float32[Tensor, "K N"]) -> Float32[Tensor, "M N"]:
    return a @ b


@task(7, a=(60, 4), b=(4, 50))
def small_k(a: Float32[Tensor, "M K"], b: Float32[Tensor, "K N"]) -> Float32[Tensor, "M N"]:
    return a @ b


@task(8, a=(83, 29), b=(29, 57))
def irregular(a: Float32[Tensor, "M K"], b: Float32[Tensor, "K N"]) -> Float32[Tensor, "M N"]:
    return a @ b


@task(9, a=(128, 4), b=(4, 128))
def tall_skinny(a: Float32[Tensor, "M N"], b: Float32[Tensor, "N M"]) -> Float32[Tensor, "M M"]:
    return a @ b


@task(10, a=(3, 8, 16), b=(16, 7))
def tensor3d(a: Float32[Tensor, "N M K"], b: Float32[Tensor, "K L"]) -> Float32[Tensor, "N M L"]:
    return a @ b


@task(11, a=(2, 5, 6, 8), b=(8, 9))
def tensor4d(
    a: Float32[Tensor, "B I J L"], b: Float32[Tensor, "L K"]
) -> Float32[Tensor, "B I J K"]:
    return torch.einsum("bijl,lk->bijk", a, b)


@task(12, a=(32,), b=(32, 20))
def diagonal(a: Float32[Tensor, "N"], b: Float32[Tensor, "N M"]) -> Float32[Tensor, "N M"]:
    # The zeros of a matrix would make NaN of infinite factors.
    return torch.einsum("n,nm->nm", a, b)


@task(14, a=(20, 20), b=(20, 20))
def upper_triangular(
    a: Float32[Tensor, "N N"], b: Float32[Tensor, "N N"]
) -> Float32[Tensor, "N N"]:
    return (a.triu() @ b.triu()).triu()


@task(15, a=(20, 20), b=(20, 20))
def lower_triangular(
    a: Float32[Tensor, "N N"], b: Float32[Tensor, "N N"]
) -> Float32[Tensor, "N N"]:
    return (a.tril() @ b.tril()).tril()


@task(16, a=(48, 16), b=(48, 24))
def transposed_a(a: Float32[Tensor, "K M"], b: Float32[Tensor, "K N"]) -> Float32[Tensor, "M N"]:
    return a.T @ b


@task(17, a=(16, 48), b=(24, 48))
def transposed_b(a: Float32[Tensor, "M K"], b: Float32[Tensor, "N K"]) -> Float32[Tensor, "M N"]:
    return a @ b.T


@task(18, a=(48, 16), b=(24, 48))
def transposed_both(a: Float32[Tensor, "K M"], b: Float32[Tensor, "N K"]) -> Float32[Tensor, "M N"]:
    return a.T @ b.T
