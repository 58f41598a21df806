"""Every way of calling an operator passes the one validation: transforms, autocast, compilers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

import pytest
import torch
from jaxtyping import Float, Int64
from torch import Tensor, func
from torch.autograd import forward_ad

import opsmith
from opsmith import Index, checks
from opsmith.checks.isolation.call_ways import ways
from opsmith.errors import OpsmithError


def _picked(x: Tensor, w: Tensor, rows: Tensor) -> Tensor:
    return x[rows] * w


@opsmith.op("every_way::pick", autograd="reference")
def pick(
    x: Float[Tensor, "N C"], w: Float[Tensor, "C"], rows: Annotated[Int64[Tensor, "P"], Index("N")]
) -> Float[Tensor, "P C"]:
    """Rows of `x`, each channel weighted."""
    return _picked(x, w, rows)


@opsmith.op("every_way::folded", autograd="reference", parallel_dims=("C",))
def folded(
    x: Float[Tensor, "N C"], w: Float[Tensor, "C"], rows: Annotated[Int64[Tensor, "P"], Index("N")]
) -> Float[Tensor, "P C"]:
    """The same, and a batch is laid into the channels."""
    return _picked(x, w, rows)


X, W, ROWS = torch.arange(6.0).reshape(3, 2), torch.tensor([1.0, 2.0]), torch.tensor([2, 0])
BAD: dict[str, tuple[str, dict[str, Tensor]]] = {
    "a value below": ("rows", {"rows": torch.tensor([0, 1, -1])}),
    "a value above": ("rows", {"rows": torch.tensor([0, 3])}),
    "a dtype": ("rows", {"rows": ROWS.float()}),
    "another dtype": ("w", {"w": W.to(torch.complex64)}),
    "a size": ("w", {"w": torch.ones(1)}),
    "a rank": ("w", {"w": torch.ones(())}),
}


def _forward_ad(x: Tensor, call: Callable[[Tensor], Tensor]) -> Any:
    with forward_ad.dual_level():
        return forward_ad.unpack_dual(call(forward_ad.make_dual(x, torch.ones_like(x))))


FORWARD: dict[str, Callable[[Callable[[Tensor], Tensor]], Any]] = {
    "jvp": lambda call: func.jvp(call, (X,), (torch.ones_like(X),)),
    "jacfwd": lambda call: func.jacfwd(call)(X),
    "forward_ad": lambda call: _forward_ad(X, call),
    "forward over reverse": lambda call: func.jacfwd(func.grad(lambda x: call(x).sum()))(X),
    "reverse over forward": lambda call: func.jacrev(func.jacfwd(call))(X),
    "jvp of vmap": lambda call: func.jvp(
        func.vmap(call), (torch.stack([X, X]),), (torch.ones(2, 3, 2),)
    ),
    "vmap of jvp": lambda call: func.vmap(lambda x: func.jvp(call, (x,), (torch.ones_like(x),)))(
        torch.stack([X, X])
    ),
}


@pytest.mark.parametrize("way", FORWARD)
def test_forward_mode_refuses_what_a_call_refuses(way: str) -> None:
    for operator in (pick, folded):
        good = FORWARD[way](lambda x, op=operator: op(x, W, ROWS))
        torch.testing.assert_close(good, FORWARD[way](lambda x: _picked(x, W, ROWS)))
        for named, change in BAD.values():
            arguments = {"w": W, "rows": ROWS} | change
            with pytest.raises(OpsmithError, match=f"^{operator.name}: .*'{named}'"):
                FORWARD[way](lambda x, op=operator, a=arguments: op(x, **a))


def test_each_sample_of_a_batch_is_refused_by_its_own_values() -> None:
    """A batched index, of which the second sample is out of range, in forward mode."""

    def along(rows: Tensor) -> Any:
        return func.jvp(lambda x: pick(x, W, rows), (X,), (torch.ones_like(X),))

    good = torch.stack([ROWS, ROWS.flip(0)])
    torch.testing.assert_close(
        func.vmap(along)(good)[0], torch.stack([_picked(X, W, rows) for rows in good])
    )
    with pytest.raises(OpsmithError, match="'rows' has value 3 at index 1, expected 0 <= value"):
        func.vmap(along)(torch.stack([ROWS, torch.tensor([0, 3])]))


def test_compiled_forward_mode_refuses_what_a_call_refuses() -> None:
    @torch.compile(backend="aot_eager", fullgraph=True)
    def along(x: Tensor, rows: Tensor) -> Any:
        return func.jvp(lambda x: pick(x, W, rows), (x,), (torch.ones_like(x),))

    torch.testing.assert_close(along(X, ROWS), (_picked(X, W, ROWS), _picked(X * 0 + 1, W, ROWS)))
    with pytest.raises(RuntimeError, match="every_way::pick: argument 'rows' has value -1"):
        along(X, torch.tensor([0, -1]))


def test_results_of_forward_mode_are_the_kernels_own() -> None:
    @opsmith.op("every_way::halve", autograd="reference")
    def halve(x: Float[Tensor, "N"]) -> tuple[Float[Tensor, "N"], list[Tensor], Int64[Tensor, ""]]:
        return x / 2, [x * x], torch.tensor(x.numel())

    @halve.register_kernel("cpu")
    def _(x: Tensor) -> tuple[Tensor, list[Tensor], Tensor]:
        return x * 0.5, [x**2], torch.tensor(x.numel())

    x = torch.tensor([1.0, 3.0])
    (half, (square,), count), along = func.jvp(halve, (x,), (torch.ones(2),))
    assert (half.tolist(), square.tolist(), int(count)) == ([0.5, 1.5], [1, 9], 2)
    assert (along[0].tolist(), along[1][0].tolist()) == ([0.5, 0.5], [2, 6])
    assert halve.kernels["cpu"].calls == 1


@pytest.mark.parametrize("operator", [pick, folded], ids=lambda operator: operator.name)
@pytest.mark.parametrize("bad", BAD)
def test_every_way_of_calling_refuses_what_a_call_refuses(operator: Any, bad: str) -> None:
    named, change = BAD[bad]
    arguments = {"x": X, "w": W, "rows": ROWS} | change
    tried = []
    for way, call in ways(operator, lambda given: operator(**given), arguments):
        tried.append(way)
        with pytest.raises(OpsmithError, match=f"^{operator.name}: .*'{named}'"):
            call(arguments)
    assert tried == ["jvp", "vjp", "vmap", "functionalize", "autocast"]


def test_a_batching_rule_written_by_hand_gets_samples_that_fit() -> None:
    @opsmith.op("every_way::by_hand")
    def by_hand(x: Float[Tensor, "N 2"]) -> Float[Tensor, "N"]:
        return x.sum(1)

    @by_hand.register_vmap
    def _(info: Any, in_dims: Any, x: Tensor) -> Any:
        return x.movedim(in_dims[0], 0)[..., 0] + x.movedim(in_dims[0], 0)[..., 1], 0

    assert torch.vmap(by_hand)(torch.ones(3, 4, 2)).shape == (3, 4)
    with pytest.raises(OpsmithError, match=r"^every_way::by_hand: argument 'x' does not fit"):
        torch.vmap(by_hand)(torch.ones(3, 4, 3))


def test_the_row_refusal_tries_every_way_of_calling() -> None:
    report = checks.run(pick, select=["validation"], isolate=False, examples=2)
    (row,) = [row for row in report.rows if row.check == "validation"]
    assert row.status == "passed", row.message
    assert "also under jvp, vjp, vmap, functionalize, autocast" in row.notes


def test_the_row_refusal_finds_a_way_that_skips_the_validation() -> None:
    @opsmith.op("every_way::skips", autograd="reference")
    def skips(
        x: Float[Tensor, "N C"],
        w: Float[Tensor, "C"],
        rows: Annotated[Int64[Tensor, "P"], Index("N")],
    ) -> Float[Tensor, "P C"]:
        return _picked(x, w, rows)

    @skips.register_vmap
    def _(info: Any, in_dims: Any, x: Tensor, w: Tensor, rows: Tensor) -> Any:
        samples = zip(
            x.unbind(in_dims[0]), w.unbind(in_dims[1]), rows.unbind(in_dims[2]), strict=True
        )
        return torch.stack([_picked(*sample) for sample in samples]), 0

    report = checks.run(skips, select=["validation"], isolate=False, examples=2)
    (row,) = [row for row in report.rows if row.check == "validation"]
    assert row.status == "failed" and "under vmap: " in row.message
