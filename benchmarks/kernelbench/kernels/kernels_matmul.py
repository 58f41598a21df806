"""Kernels for products of matrices: outer products that are added up, and mistakes."""

import torch
from kinds import in_double


def _outer(a, b):
    """Add up outer products of columns and rows."""
    return (a[..., :, :, None] * b[..., None, :, :]).sum(-2)


def _by_rows(a, b):
    rows = [(row[:, None] * b).sum(0) for row in a]
    return torch.stack(rows) if rows else a.new_zeros(0, b.shape[1])


def _half_sum(a, b):
    """Add up only the first 256 products."""
    return a[..., :256] @ b[..., :256, :]


RIGHT = {
    "square_matmul": in_double(_outer),
    "matmul": in_double(_by_rows),
    "batched_matmul": in_double(_outer),
    "matrix_vector": in_double(lambda a, b: (a * b.T).sum(1, keepdim=True)),
    "matrix_scalar": lambda a, s: s * a,
    "large_k": in_double(lambda a, b: sum(a[:, i::7] @ b[i::7] for i in range(7))),
    "small_k": in_double(_by_rows),
    "irregular": in_double(_outer),
    "tall_skinny": in_double(_outer),
    "tensor3d": in_double(lambda a, b: (a[..., None] * b).sum(2)),
    "tensor4d": in_double(lambda a, b: (a[..., None] * b).sum(3)),
    "diagonal": lambda a, b: (b.T * a).T.contiguous(),
    "upper_triangular": in_double(lambda a, b: _by_rows(a.triu(), b.triu()).triu()),
    "lower_triangular": in_double(lambda a, b: _by_rows(a.tril(), b.tril()).tril()),
    "transposed_a": in_double(lambda a, b: _outer(a.T, b)),
    "transposed_b": in_double(lambda a, b: _outer(a, b.T)),
    "transposed_both": in_double(lambda a, b: (b @ a).T.contiguous()),
}
SOURCES = {"matmul": "matmul.cpp"}
WRONG = {
    "square_matmul": lambda a, b: b @ a,
    "matmul": _half_sum,
    "batched_matmul": lambda a, b: a[:1] @ b,
    "matrix_vector": _half_sum,
    "matrix_scalar": lambda a, s: a * 3.14,
    "large_k": lambda a, b: a[:, : a.shape[1] // 32 * 32] @ b[: a.shape[1] // 32 * 32],
    "small_k": lambda a, b: a[:, :4] @ b[:4],
    "irregular": lambda a, b: (a.half() @ b.half()).float(),
    "tall_skinny": lambda a, b: (a @ b).triu() + (a @ b).triu(1).T,
    "tensor3d": lambda a, b: a[:, :8] @ b if a.shape[1] <= 8 else a[:, :1].expand_as(a) @ b,
    "tensor4d": lambda a, b: torch.einsum("bijl,lk->bjik", a, b).reshape(*a.shape[:3], -1),
    "diagonal": lambda a, b: b * a if a.shape[0] == b.shape[1] else a[:, None] * b.abs(),
    "upper_triangular": lambda a, b: (a @ b).triu(),
    "lower_triangular": lambda a, b: a.tril() @ b.tril() + a.triu(1),
    "transposed_a": lambda a, b: a.reshape(a.shape[1], a.shape[0]) @ b,
    "transposed_b": lambda a, b: a @ b.reshape(b.shape[1], b.shape[0]),
    "transposed_both": lambda a, b: (b.bfloat16() @ a.bfloat16()).T.float(),
}
