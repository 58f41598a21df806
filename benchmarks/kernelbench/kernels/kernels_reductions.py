"""Kernels for reductions and scans: loops and products with triangles, and mistakes."""

import torch
from kinds import in_double


def _scan(x, combine):
    columns = []
    for column in x.unbind(1):
        columns.append(combine(columns[-1], column) if columns else column)
    return torch.stack(columns, 1) if columns else x.clone()


def _sums(x):
    return _scan(x, torch.add)


def _exclusive(x):
    total = torch.zeros_like(x)
    if x.shape[1] > 1:
        total[:, 1:] = _sums(x[:, :-1])
    return total


def _inclusive_less_own(x):
    return x.cumsum(1) - x


RIGHT = {
    "sum_reduction": in_double(lambda x: torch.einsum("ncl->nl", x)[:, None]),
    "mean_reduction": in_double(lambda x: torch.einsum("ncl->nl", x) / x.shape[1]),
    "max_reduction": lambda x: x.sort(1).values[:, -1].clone(),
    "argmax": lambda x: x.max(1).indices,
    "argmin": lambda x: x.min(1).indices,
    "min_reduction": lambda x: x.min(1).values,
    "cumsum": in_double(_sums),
    "cumprod": in_double(lambda x: _scan(x, torch.mul)),
    "cumsum_reverse": in_double(lambda x: _sums(x.flip(1)).flip(1)),
    "cumsum_exclusive": in_double(_exclusive),
    "masked_cumsum": in_double(lambda x, mask: _sums(x * mask)),
}
SOURCES = {"cumsum": "cumsum.cpp"}
WRONG = {
    "sum_reduction": lambda x: x.half().sum(1, keepdim=True).float(),
    "mean_reduction": lambda x: x.sum(1) / 40,
    "max_reduction": lambda x: x.nan_to_num(0).amax(1),
    # The last of the largest elements.
    "argmax": lambda x: x.shape[1] - 1 - x.flip(1).argmax(1),
    "argmin": lambda x: x.abs().argmin(1),
    "min_reduction": lambda x: x[:, :40].amin(1),
    # Each block begins anew.
    "cumsum": lambda x: torch.cat([part.cumsum(1) for part in x.split(64, 1)], 1),
    "cumprod": lambda x: x.abs().log().cumsum(1).exp(),
    "cumsum_reverse": lambda x: x.cumsum(1).flip(1),
    "cumsum_exclusive": _inclusive_less_own,
    "masked_cumsum": lambda x, mask: x.cumsum(1) * mask,
}
