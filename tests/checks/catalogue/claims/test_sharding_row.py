"""The row `sharding`: wrong rules are found, right ones pass, and claims that hold are offered."""

from __future__ import annotations

import functools
import itertools
import re
from collections.abc import Callable
from typing import Any, Literal

import pytest
import torch
from jaxtyping import Complex64, Float, Float32, Int64
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor
from torch._subclasses.functional_tensor import FunctionalTensor
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard
from torch.distributed.tensor.experimental import register_sharding

import opsmith
from opsmith import checks

pytestmark = pytest.mark.slow(cases=2)

R = Replicate()
Rows = Float[Tensor, "N C"]
NUMBER = itertools.count()
FAULTS: dict[str, Callable[[], Any]] = {}
TWINS: dict[str, Callable[[], Any]] = {}


def row(operator: Any, examples: int = 48) -> Any:
    report = checks.run(operator, select=["sharding"], isolate=False, examples=examples)
    return report.rows[-1]


def fault(
    what: str,
    reference: Any,
    wrong: dict[str, Any] | None = None,
    right: dict[str, Any] | None = None,
) -> None:
    """Plant a wrong rule, and a right one beside it: options of the decorator, or `rules`."""

    def declare(options: dict[str, Any]) -> Any:
        own = {"autograd": "reference", **options}
        rules = own.pop("rules", None)
        backward = own.pop("backward", None)
        to_pytorch = own.pop("to_pytorch", None)
        operator = opsmith.op(f"sharding_row::op{next(NUMBER)}", **own)(reference)
        if rules is not None:
            operator.register_sharding(rules)
        if backward is not None:
            operator.register_autograd(backward, setup_context=_save)
        if to_pytorch is not None:
            register_sharding(operator.overload)(to_pytorch)
        return operator

    FAULTS[what] = functools.partial(declare, wrong or {})
    TWINS[what] = functools.partial(declare, right or {})


def _save(ctx: Any, inputs: Any, output: Any) -> None:
    ctx.save_for_backward(*(one for one in inputs if isinstance(one, Tensor)))


def softmax(x: Rows) -> Rows:
    return x.softmax(1)


def running(x: Rows) -> Rows:
    return x.cumsum(0)


def scaled(x: Rows, w: Float[Tensor, "C"]) -> Rows:
    return x * w


def counted(x: Rows) -> Rows:
    return x * x.shape[0]


def neighbours(x: Rows) -> Rows:
    return x + x.roll(1, 0)


def product(x: Float[Tensor, "N K"], y: Float[Tensor, "K M"]) -> Float[Tensor, "N M"]:
    return x @ y


def mean(x: Rows) -> Float[Tensor, "C"]:
    return x.mean(0) if x.shape[0] else x.sum(0)


def total(x: Rows) -> Float[Tensor, "C"]:
    return x.sum(0)


def largest(x: Rows) -> Float[Tensor, "C"]:
    return x.amax(0) if x.shape[0] else x.sum(0)


def relu(x: Rows) -> Rows:
    return x.relu()


def affine(x: Rows, b: Float[Tensor, "C"]) -> Rows:
    return 2 * x + b


def pairs(x: Rows) -> Rows:
    even = x[: x.shape[0] // 2 * 2].unflatten(0, (-1, 2)) if x.shape[0] > 1 else None
    return x.clone() if even is None else torch.cat([even.flip(1).flatten(0, 1), x[len(x) & ~1 :]])


def normed(axis: Literal["rows", "columns"], x: Rows) -> Rows:
    return x.softmax(1 if axis == "rows" else 0)


def both(x: Rows) -> tuple[Rows, Float[Tensor, "C"]]:
    return x * 2, x.sum(0)


def picked(x: Rows, i: Int64[Tensor, "P"]) -> Float[Tensor, "P C"]:
    return x.sum(0) * (i % 3).to(x.dtype).unsqueeze(1)


def outer(x: Float[Tensor, "N"], y: Float[Tensor, "N"]) -> Float[Tensor, "N"]:
    return x * y


def _same(shard: Any) -> Callable[..., Any]:
    return lambda x: [([shard], [shard])]


def _by_string(first: int, second: int) -> Callable[..., Any]:
    def rules(axis: str, x: Any) -> Any:
        place = Shard(first if axis == "rows" else second)
        return [([place], [None, place])]

    return rules


def _scaled_backward(weight: Callable[[Tensor], Tensor]) -> Callable[..., Any]:
    def backward(ctx: Any, grad: Tensor) -> Any:
        x, w = ctx.saved_tensors
        return grad * w, weight(grad * x)

    return backward


N, C = {"parallel_dims": ("N",)}, {"parallel_dims": ("C",)}
fault("a dimension that the softmax is over", softmax, C, N)
fault("a dimension that is scanned", running, N, C)
fault("a dimension whose size is a factor", counted, N, C)
fault("a dimension whose neighbours meet", neighbours, N, C)
fault("a dimension that uneven shards cut", pairs, N, C)
fault("a mean that is claimed to be a sum", mean, {"summed_dims": ("N",)}, C)
fault("a largest value that is claimed to be a sum", largest, {"summed_dims": ("N",)}, C)
fault(
    "a sum over the wrong dimension",
    product,
    {"rules": lambda x, y: [([Partial()], [Shard(0), R])]},
    {"rules": lambda x, y: [([Partial()], [Shard(1), Shard(0)])]},
)
fault("relu claimed to be linear", relu, {"linear_in": ("x",)}, N)
fault("an affine function claimed to be linear", affine, {"linear_in": ("x",)}, N)
fault("a product linear in both", outer, {"linear_in": (("x", "y"),)}, {"linear_in": ("x", "y")})
fault(
    "a result that is no replica",
    both,
    {"rules": lambda x: [([Shard(0), R], [Shard(0)])]},
    {"rules": lambda x: [([Shard(0), Partial()], [Shard(0)])]},
)
fault(
    "a result that is no summand",
    total,
    {"rules": lambda x: [([Partial()], [Shard(1)])]},
    {"rules": lambda x: [([Partial()], [Shard(0)])]},
)
fault("a missing Partial", total, {"rules": lambda x: [([R], [Shard(0)])]}, {"summed_dims": ("N",)})
fault("an average for a sum", total, {"rules": lambda x: [([Partial("avg")], [Shard(0)])]}, C)
fault(
    "the wrong axis of the result",
    scaled,
    {"rules": lambda x, w: [([Shard(1)], [Shard(0), R])]},
    {"rules": lambda x, w: [([Shard(0)], [Shard(0), R])]},
)
fault(
    "a weight that is replicated beside columns",
    scaled,
    {"rules": lambda x, w: [([Shard(1)], [Shard(1), R])]},
    {"rules": lambda x, w: [([Shard(1)], [Shard(1), Shard(0)])]},
)
EITHER = {"rules": _by_string(0, 1)}
fault("another axis for one string", normed, {"rules": _by_string(0, 0)}, EITHER)
fault("rows and columns exchanged", normed, {"rules": _by_string(1, 0)}, EITHER)
fault(
    "a backward that takes the mean of its rows",
    scaled,
    {**N, "backward": _scaled_backward(lambda g: g.sum(0) * (1 if len(g) % 2 else 2))},
    {**N, "backward": _scaled_backward(lambda g: g.sum(0))},
)
fault(
    "indices that are sharded as if they were rows",
    picked,
    {"rules": lambda x, i: [([Shard(0)], [Shard(0), Shard(0)])]},
    {"parallel_dims": ("P",)},
)
fault(
    "a rule given to PyTorch",
    softmax,
    {"to_pytorch": lambda x: [([R], [R]), ([Shard(1)], [Shard(1)])]},
    {"to_pytorch": lambda x: [([R], [R]), ([Shard(0)], [Shard(0)])]},
)


@pytest.mark.parametrize("what", FAULTS)
def test_a_wrong_rule_is_found(what: str) -> None:
    found = row(FAULTS[what]())
    assert found.status == "failed", found
    assert found.code in ("OPS-SHARDING-WRONG", "OPS-SHARDING-RAISED"), found
    assert "ranks with" in found.message


@pytest.mark.parametrize("what", TWINS)
def test_a_right_rule_passes(what: str) -> None:
    found = row(TWINS[what](), examples=16)
    assert (found.status, found.message) == ("passed", ""), found


def test_there_are_twenty_wrong_rules() -> None:
    assert len(FAULTS) >= 20


def test_a_wrong_rule_is_named_with_what_the_ranks_held() -> None:
    message = row(FAULTS["a dimension that the softmax is over"]()).message
    assert message.startswith('parallel_dims=("C",): on 2 ranks with x Shard(1): ')


def by_hand(moves: Callable[[Any], Any]) -> Any:
    """Declare an operator whose author calls it with DTensors, and may send what no rule says."""

    @opsmith.op(f"sharding_row::op{next(NUMBER)}", parallel_dims=("N",))
    def doubled(x: Rows) -> Rows:
        return x * 2

    def call(_: Any, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        x = moves(args[0])
        if not all(one.is_replicate() for one in x.placements):
            x = x.redistribute(placements=[Shard(0)] * x.device_mesh.ndim)
        return DTensor.from_local(
            x.to_local() * 2,
            x.device_mesh,
            x.placements,
            run_check=False,
            shape=x.shape,
            stride=x.stride(),
        )

    doubled.register_torch_dispatch(DTensor, call)
    return doubled


def test_bytes_that_a_call_sends_beside_its_rule_are_found() -> None:
    assert row(by_hand(lambda x: x), examples=8).status == "passed"

    def gathers(x: Any) -> Any:
        x.full_tensor()
        return x

    found = row(by_hand(gathers), examples=8)
    assert (found.status, found.code) == ("failed", "OPS-SHARDING-MOVES")
    assert re.search(
        r"x Shard\(0\): the call communicated 1 times \(all_gather; [1-9]\d* bytes\), and the rule "
        r"says that ranks need nothing of each other$",
        found.message,
    )

    def gathers_twice(x: Any) -> Any:
        if x.placements == (Shard(1),):
            x.full_tensor()
        return x

    found = row(by_hand(gathers_twice), examples=8)
    assert found.code == "OPS-SHARDING-MOVES"
    assert re.search(
        r"on \d ranks with x Shard\(1\): each rank sent \d+ bytes in 2 collectives, and "
        r"redistributing x to Shard\(0\) takes \d+ in 1$",
        found.message,
    )


def test_a_rule_that_torch_compile_does_not_follow_is_found() -> None:
    scales = opsmith.op("sharding_row::traced")(scaled)

    def rules(x: Any, w: Any) -> Any:
        part = x.to_local() if isinstance(x, DTensor) else x
        traced = isinstance(part, FakeTensor | FunctionalTensor)
        return [] if traced else [([Shard(0)], [Shard(0), R])]

    scales.register_sharding(rules)
    found = row(scales, examples=8)
    assert (found.status, found.code) == ("failed", "OPS-SHARDING-MOVES")
    assert found.message.endswith(
        "register_sharding: on 2 ranks with x Shard(0), under torch.compile: the graph has 1 "
        "collectives (all_gather), and the rule says that ranks need nothing of each other"
    )


def test_claims_that_hold_and_were_not_made_are_offered() -> None:
    assert row(opsmith.op("sharding_row::offered")(scaled)).message == (
        "claims nothing that ranks may share; valid on every case tried, and not claimed: "
        'parallel_dims=("N", "C"), linear_in=("x", "w")'
    )
    noted = row(opsmith.op("sharding_row::some", summed_dims=("K",))(product)).notes
    assert noted == (
        'valid on every case tried, and not claimed: parallel_dims=("N", "M"), '
        'linear_in=("x", "y")',
    )


def test_claims_that_fail_on_a_case_are_not_offered() -> None:
    message = row(opsmith.op("sharding_row::none")(affine)).message
    assert message.endswith('not claimed: parallel_dims=("N", "C"), linear_in=(("x", "b"),)')
    assert row(opsmith.op("sharding_row::pairs")(running)).message.endswith(
        'not claimed: parallel_dims=("C",), linear_in=("x",)'
    )


def test_operators_without_a_rule_say_so() -> None:
    @opsmith.op("sharding_row::zeros")
    def zeros(n: int) -> Float32[Tensor, "{n}"]:
        return torch.zeros(n)

    assert row(zeros).message == "takes no tensor"


def spectrum(x: Float32[Tensor, "N K"]) -> Complex64[Tensor, "N K//2+1"]:
    return torch.fft.rfft(x)


def choosy(x: Rows) -> Rows:
    if not x.shape[0]:
        raise ValueError("no row")
    return x * 2


def _raises_if_few(x: Tensor) -> Tensor:
    if x.shape[0] < 2:
        raise ValueError("few rows")
    return x * 2


def doubled(x: Rows) -> Rows:
    return x * 2


def test_a_part_that_the_reference_refuses_is_no_failure() -> None:
    for reference in (spectrum, choosy):
        operator = opsmith.op(f"sharding_row::op{next(NUMBER)}", **N)(reference)
        found = row(operator)
        assert found.status == "passed", found.explain()
    operator = opsmith.op(f"sharding_row::op{next(NUMBER)}", **N)(doubled)
    operator.register_kernel("cpu", _raises_if_few)
    found = row(operator)
    assert (found.status, found.code) == ("failed", "OPS-SHARDING-RAISED")
    assert "few rows" in found.message


def weighed(x: Rows, w: Float[Tensor, "C"]) -> Rows:
    return x * torch.where(w > 0, torch.inf, w)


def test_an_infinite_value_says_nothing_about_a_sum() -> None:
    operator = opsmith.op(f"sharding_row::op{next(NUMBER)}", linear_in=("x",))(weighed)
    found = row(operator)
    assert found.status == "passed", found.explain()
