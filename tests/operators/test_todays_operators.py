"""`examples/todays_operators`: the references are what their sources say, the kernels are right."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from torch.nn import functional

from opsmith import checks
from opsmith.checks.protocol import QUICK
from opsmith.sources import importing

FOLDER = Path(__file__).parents[2] / "examples" / "todays_operators"
NAMES = sorted(path.stem for path in FOLDER.glob("*.py"))
#: Three of the quick checks compile each kernel again.
ROWS = [row for row in QUICK if row not in ("exact", "bounds", "schedules")]


def _module(name: str) -> ModuleType:
    return importing.import_module(str(FOLDER / f"{name}.py"))


def _reference(module: str, name: str = "") -> Callable[..., Any]:
    reference: Callable[..., Any] = getattr(_module(module), name or module).reference
    return reference


@pytest.mark.long  # docs/test_readme.py has such a run; below, what they compute
@pytest.mark.parametrize("name", NAMES)
def test_an_operator_passes_the_quick_checks(name: str) -> None:
    operators = importing.declared_by(_module(name))
    report = checks.run(operators, select=ROWS, examples=6, isolate=False)
    assert report.ok, report.explain()


@pytest.mark.filterwarnings("ignore:Sparse CSR tensor support")
def test_a_csr_product_is_that_of_torch_sparse() -> None:
    matrix = torch.randn(5, 4) * (torch.rand(5, 4) < 0.4)
    sparse, dense = matrix.to_sparse_csr(), torch.randn(4, 3)
    arguments = sparse.crow_indices(), sparse.col_indices(), sparse.values(), dense
    torch.testing.assert_close(_reference("csr_matmul")(*arguments), matrix @ dense)


def test_the_gradient_of_an_embedding_is_pytorchs() -> None:
    weight = torch.randn(7, 3, requires_grad=True)
    ids, grad = torch.tensor([[1, 6], [1, 0]]), torch.randn(2, 2, 3)
    (expected,) = torch.autograd.grad(functional.embedding(ids, weight), weight, grad)
    found = _reference("embedding", "embedding_backward")(grad, weight.detach(), ids)
    torch.testing.assert_close(found, expected)


def test_a_step_of_adamw_is_pytorchs() -> None:
    params = [torch.randn(3, 4), torch.randn(2)]
    theirs = [torch.nn.Parameter(one.clone()) for one in params]
    optimizer = torch.optim.AdamW(theirs, lr=0.1, betas=(0.8, 0.95), weight_decay=0.3)
    averages, squares = ([torch.zeros_like(one) for one in params] for _ in range(2))
    for step in (1, 2, 3):
        grads = [torch.randn_like(one) for one in params]
        for one, grad in zip(theirs, grads, strict=True):
            one.grad = grad
        optimizer.step()
        numbers = {"lr": 0.1, "beta1": 0.8, "beta2": 0.95, "weight_decay": 0.3}
        _reference("adamw")(params, grads, averages, squares, step, **numbers)
    torch.testing.assert_close(params, [one.detach() for one in theirs])


def test_soft_dtw_is_the_soft_least_cost_of_all_paths_with_its_gradient() -> None:
    cost = torch.rand(2, 3, 3, dtype=torch.float64, requires_grad=True)
    moves = ((1, 0), (0, 1), (1, 1))

    def paths(i: int, j: int) -> list[list[tuple[int, int]]]:
        if (i, j) == (2, 2):
            return [[(2, 2)]]
        ways = [(i + a, j + b) for a, b in moves if i + a < 3 and j + b < 3]
        return [[(i, j), *path] for way in ways for path in paths(*way)]

    sums = torch.stack([sum(cost[:, i, j] for i, j in path) for path in paths(0, 0)])
    expected = -0.7 * (-sums / 0.7).logsumexp(0)
    value, table = _reference("soft_dtw")(cost, 0.7)
    torch.testing.assert_close(value, expected)
    grad = torch.randn(2, dtype=torch.float64)
    (slope,) = torch.autograd.grad(expected, cost, grad)
    found = _reference("soft_dtw", "soft_dtw_backward")(grad, cost.detach(), table.detach(), 0.7)
    torch.testing.assert_close(found, slope)
