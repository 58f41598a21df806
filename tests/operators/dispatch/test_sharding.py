"""Calls with DTensors, on several ranks of one process: results, gradients, and what is refused."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Literal

import pytest
import torch
import torch.distributed as dist
from jaxtyping import Float
from torch import Tensor
from torch.distributed._local_tensor import LocalTensor, LocalTensorMode, rank_map
from torch.distributed.tensor import (
    DeviceMesh,
    DTensor,
    Partial,
    Replicate,
    Shard,
    distribute_tensor,
    init_device_mesh,
)
from torch.distributed.tensor.debug import CommDebugMode
from torch.distributed.tensor.experimental import register_sharding

import opsmith
from opsmith import ArgumentError, OpsmithError

R = Replicate()


@opsmith.op("sharding::scaled", parallel_dims=("N",), autograd="reference")
def scaled(x: Float[Tensor, "N C"], w: Float[Tensor, "C"]) -> Float[Tensor, "N C"]:
    # DTensor has no rule for what a reference may do: here a plain tensor meets its arguments.
    return x / (x * x).sum(1, keepdim=True).sqrt() * w * torch.ones(w.shape[0], dtype=w.dtype)


@opsmith.op("sharding::by_hand", parallel_dims=("N",))
def by_hand(x: Float[Tensor, "N C"], w: Float[Tensor, "C"]) -> Float[Tensor, "N C"]:
    return x * w * w


@by_hand.register_autograd(
    setup_context=lambda ctx, inputs, output: ctx.save_for_backward(*inputs),
)
def _(ctx, grad):
    x, w = ctx.saved_tensors
    return grad * w * w, (grad * x * 2 * w).sum(0)


@opsmith.op("sharding::declared", parallel_dims=("*s",), linear_in=("x",))
def declared(
    x: Float[Tensor, "*s C"], w: Float[Tensor, "C"], times: float = 1.0
) -> Float[Tensor, "*s C"]:
    return x * w * times


@opsmith.op("sharding::declared_backward")
def declared_backward(
    grad: Float[Tensor, "*s C"], x: Float[Tensor, "*s C"], w: Float[Tensor, "C"], times: float
) -> tuple[Float[Tensor, "*s C"], Float[Tensor, "C"]]:
    return grad * w * times, (grad * x * times).flatten(0, -2).sum(0)


declared.register_backward(declared_backward, grads={"x": 0, "w": 1})


@opsmith.op("sharding::product", summed_dims=("K",), autograd="reference")
def product(x: Float[Tensor, "N K"], y: Float[Tensor, "K M"]) -> Float[Tensor, "N M"]:
    return x @ y


@opsmith.op("sharding::write", mutates_args=("x",), parallel_dims=("N",))
def write(x: Float[Tensor, "N C"], y: Float[Tensor, "N C"] | None = None) -> None:
    x.mul_(2) if y is None else x.add_(y)


@opsmith.op("sharding::sums", parallel_dims=("N",))
def sums(
    xs: list[Float[Tensor, "N C"]], y: Float[Tensor, "N C"] | None = None
) -> tuple[Float[Tensor, "N C"], Float[Tensor, "N"]]:
    total = sum(xs[1:], xs[0]) if y is None else sum(xs, y)
    return total.clone(), total.sum(1)


@contextmanager
def ranks(*mesh: int) -> Iterator[DeviceMesh]:
    """A mesh of ranks in this process."""
    count = 1
    for size in mesh:
        count *= size
    dist.init_process_group("fake", rank=0, world_size=count)
    try:
        with LocalTensorMode(count):
            yield init_device_mesh("cpu", mesh)
    finally:
        dist.destroy_process_group()


def whole(tensor: Any) -> Tensor:
    full = tensor.full_tensor()
    return full.reconcile() if isinstance(full, LocalTensor) else full


def tensors(*shapes: Sequence[int]) -> list[Tensor]:
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(*shape, generator=generator, dtype=torch.float64) for shape in shapes]


def gradients(function: Any, *args: Any) -> list[Tensor]:
    leaves = [arg.detach().requires_grad_() for arg in args]
    result = function(*leaves)
    (result * torch.arange(result.numel()).view(result.shape)).sum().backward()
    return [result.detach(), *(leaf.grad for leaf in leaves)]


@pytest.mark.parametrize("operator", [scaled, by_hand, declared])
@pytest.mark.parametrize("mesh", [(4,), (3,), (2, 2)])
def test_each_rank_computes_its_part_and_its_gradients(operator: Any, mesh: tuple[int]) -> None:
    for rows in (8, 7, 2):
        x, w = tensors((rows, 3), (3,))
        expected = gradients(operator, x, w)
        with ranks(*mesh) as devices:
            shards, copies = [Shard(0)] * len(mesh), [R] * len(mesh)
            dx = distribute_tensor(x, devices, shards).requires_grad_()
            dw = distribute_tensor(w, devices, copies).requires_grad_()
            incoming = torch.arange(3.0 * rows, dtype=x.dtype).view(rows, 3)
            grad = distribute_tensor(incoming, devices, shards)
            with CommDebugMode() as communication:
                result = operator(dx, dw)
                result.backward(grad)
            found = [result.detach(), dx.grad, dw.grad]
            assert communication.get_total_counts() == 0
            sums = (Partial(),) * len(mesh)
            assert [one.placements for one in found] == [(*shards,), (*shards,), sums]
            for one, true in zip(found, expected, strict=True):
                torch.testing.assert_close(whole(one), true)


def test_a_declared_backward_is_shared_as_its_forward_is() -> None:
    grad, x, w = tensors((4, 3), (4, 3), (3,))
    with ranks(2) as mesh:
        parts = [distribute_tensor(one, mesh, [Shard(0)]) for one in (grad, x)]
        dx, dw = declared_backward(*parts, distribute_tensor(w, mesh, [R]), 2.0)
        assert (dx.placements, dw.placements) == ((Shard(0),), (Partial(),))
        torch.testing.assert_close(whole(dx), grad * w * 2)
        torch.testing.assert_close(whole(dw), (grad * x * 2).sum(0))


def test_a_dimension_without_elements_is_sharded_too() -> None:
    x, w = tensors((0, 3), (3,))
    with ranks(4) as mesh:
        result = scaled(distribute_tensor(x, mesh, [Shard(0)]), distribute_tensor(w, mesh, [R]))
        assert result.shape == (0, 3)
        assert whole(result).shape == (0, 3)


def test_summands_of_a_linear_argument_give_summands_of_the_result() -> None:
    x, w = tensors((2, 5, 3), (3,))
    with ranks(4) as mesh:
        dx = DTensor.from_local(rank_map(lambda rank: rank * x), mesh, [Partial()])
        dw = distribute_tensor(w, mesh, [R])
        with CommDebugMode() as communication:
            result = declared(dx, dw)
        assert (result.placements, communication.get_total_counts()) == ((Partial(),), 0)
        torch.testing.assert_close(whole(result), (0 + 1 + 2 + 3) * x * w)


def test_a_sum_over_a_sharded_dimension_is_partial() -> None:
    x, y = tensors((2, 7), (7, 3))
    expected = gradients(product, x, y)
    with ranks(4) as mesh:
        dx = distribute_tensor(x, mesh, [Shard(1)]).requires_grad_()
        dy = distribute_tensor(y, mesh, [Shard(0)]).requires_grad_()
        result = product(dx, dy)
        assert result.placements == (Partial(),)
        incoming = torch.arange(6.0, dtype=x.dtype).view(2, 3)
        result.backward(distribute_tensor(incoming, mesh, [R]))
        found = [whole(one) for one in (result.detach(), dx.grad, dy.grad)]
        assert (dx.grad.placements, dy.grad.placements) == ((Shard(1),), (Shard(0),))
    torch.testing.assert_close(found, expected)


def test_what_no_rule_fits_is_redistributed() -> None:
    x, w = tensors((6, 4), (4,))
    with ranks(2) as mesh:
        columns = distribute_tensor(x, mesh, [Shard(1)])
        dw = distribute_tensor(w, mesh, [Shard(0)])
        with CommDebugMode() as communication:
            result = scaled(columns, dw)
        assert communication.get_total_counts() == 2
        assert result.placements in [(R,), (Shard(0),)]
        torch.testing.assert_close(whole(result), scaled(x, w))


# Send rows of five columns, which arrive in parts that are not contiguous.
@pytest.mark.parametrize("columns", [4, 5])
def test_an_operator_that_writes_writes_into_its_shards(columns: int) -> None:
    x, y = tensors((5, columns), (5, columns))
    with ranks(4) as mesh:
        for placement in (Shard(0), Shard(1), R):
            dx = distribute_tensor(x.clone(), mesh, [placement])
            assert write(dx) is None
            write(dx, distribute_tensor(y, mesh, [R]))
            assert dx.placements == (placement,)
            torch.testing.assert_close(whole(dx), 2 * x + y)


def test_a_list_that_is_written_is_written_in_its_placements() -> None:
    @opsmith.op("sharding::write_all", mutates_args=("xs",), parallel_dims=("N",))
    def write_all(xs: list[Float[Tensor, "N C"]]) -> None:
        for x in xs:
            x.mul_(2)

    x, y = tensors((5, 3), (5, 3))
    with ranks(2) as mesh:
        given = [
            distribute_tensor(x, mesh, [Shard(1)]),
            distribute_tensor(y, mesh, [Shard(0)]),
        ]
        write_all(given)
        torch.testing.assert_close([whole(one) for one in given], [2 * x, 2 * y])


def test_lists_absent_tensors_and_several_results_are_sharded() -> None:
    x, y = tensors((5, 4), (5, 4))
    with ranks(4) as mesh:
        dx, dy = (distribute_tensor(one, mesh, [Shard(0)]) for one in (x, y))
        for arguments, total in (([[dx, dy]], x + y), ([[dx, dy], dx], 2 * x + y)):
            with CommDebugMode() as communication:
                first, second = sums(*arguments)
            assert communication.get_total_counts() == 0
            torch.testing.assert_close((whole(first), whole(second)), (total, total.sum(1)))


def test_an_operator_without_a_rule_takes_whole_tensors() -> None:
    @opsmith.op("sharding::norms")
    def norms(x: Float[Tensor, "N C"]) -> Float[Tensor, "N C"]:
        return x / x.norm()

    (x,) = tensors((6, 4))
    with ranks(2) as mesh:
        result = norms(distribute_tensor(x, mesh, [Shard(0)]))
        assert result.placements == (R,)
        torch.testing.assert_close(whole(result), norms(x))


def test_rules_by_hand_may_depend_on_any_argument() -> None:
    @opsmith.op("sharding::along", autograd="reference")
    def along(axis: Literal["rows", "columns"], x: Float[Tensor, "N C"]) -> Float[Tensor, "N C"]:
        return x / x.sum(1 if axis == "rows" else 0, keepdim=True)

    @along.register_sharding
    def _(axis: str, x: Any) -> list[Any]:
        place = Shard(0 if axis == "rows" else -1)
        return [([place], [None, place])]

    (x,) = tensors((4, 4))
    with ranks(2) as mesh:
        dx = distribute_tensor(x, mesh, [Shard(0)])
        for axis, moves in (("rows", 0), ("columns", 1), ("rows", 0)):
            with CommDebugMode() as communication:
                result = along(axis, dx)
            assert communication.get_total_counts() == moves
            torch.testing.assert_close(whole(result), along(axis, x))


def test_a_largest_value_over_ranks_is_no_rule_where_a_gradient_is_needed() -> None:
    @opsmith.op("sharding::largest", autograd="reference")
    def largest(x: Float[Tensor, "N C"]) -> Float[Tensor, "C"]:
        return x.amax(0)

    largest.register_sharding(lambda x: [([Partial("max")], [Shard(0)])])
    (x,) = tensors((4, 3))
    with ranks(2) as mesh:
        dx = distribute_tensor(x, mesh, [Shard(0)])
        with torch.no_grad():
            assert largest(dx).placements == (Partial("max"),)
        torch.testing.assert_close(whole(largest(dx)), x.amax(0))
        assert largest(dx.requires_grad_()).placements == (R,)


@pytest.mark.parametrize(
    ("returned", "message"),
    [
        (
            [[Shard(0)]],
            "register_sharding: the function returned [Shard(dim=0)] among its rules, expected "
            "pairs of 1 placements of results and 2 of arguments, None for arguments that are no "
            "tensors.",
        ),
        (
            [([R], [R, None])],
            "register_sharding: the function returned ([Replicate()], [Replicate(), None]) among "
            "its rules, expected a placement for the tensor 'w'.",
        ),
        (
            [([R], [R, Shard(1)])],
            "register_sharding: the function returned ([Replicate()], [Replicate(), Shard(dim=1)]) "
            "among its rules, and 'w' has 1 dimensions, so no S(1).",
        ),
    ],
)
def test_a_rule_by_hand_that_is_no_rule_is_refused(returned: Any, message: str) -> None:
    @opsmith.op("sharding::odd")
    def odd(x: Float[Tensor, "N C"], w: Float[Tensor, "C"]) -> Float[Tensor, "N C"]:
        return x * w

    odd.register_sharding(lambda x, w: returned)
    x, w = tensors((4, 3), (3,))
    with ranks(2) as mesh, pytest.raises(OpsmithError) as caught:
        odd(*(distribute_tensor(one, mesh, [R]) for one in (x, w)))
    assert str(caught.value) == f"sharding::odd: {message}"


def test_a_plain_tensor_beside_a_dtensor_is_refused_by_name() -> None:
    x, w = tensors((4, 3), (3,))
    expected = (
        "sharding::scaled: argument 'w' is a plain torch.Tensor, and 'x' is a DTensor; if every "
        "rank holds the same 'w', pass DTensor.from_local(w, x.device_mesh, [Replicate()]), and if "
        "each holds a part, name its placement there."
    )
    with ranks(2) as mesh:
        dx = distribute_tensor(x, mesh, [Shard(0)])
        for call in (scaled, torch.ops.sharding.scaled):
            for first in (dx, dx.detach().requires_grad_()):
                with pytest.raises(ArgumentError) as caught:
                    call(first, w)
                assert str(caught.value) == expected


def test_arguments_that_do_not_fit_are_refused_by_their_whole_shapes() -> None:
    x, w = tensors((4, 3), (5,))
    with ranks(2) as mesh:
        dx, dw = distribute_tensor(x, mesh, [Shard(0)]), distribute_tensor(w, mesh, [R])
        with pytest.raises(ArgumentError) as caught:
            scaled(dx, dw)
    assert str(caught.value).splitlines() == [
        "sharding::scaled: argument 'w' does not fit Float[Tensor, \"C\"]: dimension 0 (C) is 5, "
        "expected 3.",
        "  got: shape (5,), dtype float64",
        "  bound so far: N=4, C=3 (C by 'x')",
    ]


def test_tensors_on_two_meshes_are_refused() -> None:
    x, w = tensors((4, 3), (3,))
    with ranks(4) as mesh:
        other = init_device_mesh("cpu", (2, 2))
        given = distribute_tensor(x, mesh, [R]), distribute_tensor(w, other, [R, R])
        with pytest.raises(ArgumentError, match=r"'w' is on the mesh .* a call takes one mesh"):
            scaled(*given)


def test_summands_cannot_be_written() -> None:
    (x,) = tensors((4, 3))
    with ranks(2) as mesh:
        local = distribute_tensor(x, mesh, [R]).to_local()
        with pytest.raises(ArgumentError, match=r"writes into 'x', .* redistribute it first"):
            write(DTensor.from_local(local, mesh, [Partial()]))


def test_rules_given_to_pytorch_take_the_place_of_ours() -> None:
    @opsmith.op("sharding::theirs", parallel_dims=("N",))
    def theirs(x: Float[Tensor, "N C"]) -> Float[Tensor, "N C"]:
        return x * 2

    (x,) = tensors((4, 4))
    with ranks(2) as mesh:
        dx = distribute_tensor(x, mesh, [Shard(1)])
        assert theirs(dx).placements != (Shard(1),)
        register_sharding(theirs.overload)(lambda x: [([R], [R]), ([Shard(1)], [Shard(1)])])
        assert theirs(dx).placements == (Shard(1),)
        torch.testing.assert_close(whole(theirs(dx)), 2 * x)


def test_what_an_author_registers_for_dtensors_stays() -> None:
    @opsmith.op("sharding::own", parallel_dims=("N",))
    def own(x: Float[Tensor, "N C"]) -> Float[Tensor, "N C"]:
        return x * 2

    own.register_torch_dispatch(DTensor, lambda *_: torch.zeros(7))
    with ranks(2) as mesh:
        assert own(distribute_tensor(torch.ones(2, 2), mesh, [R])).shape == (7,)


def test_an_adopted_operator_takes_no_rule() -> None:
    @opsmith.adopt("aten::asinh")
    def asinh(self: Float[Tensor, "*n"]) -> Float[Tensor, "*n"]: ...

    with pytest.raises(opsmith.DeclarationError, match="another library defines this operator"):
        asinh.register_sharding(lambda x: [])


@pytest.mark.slow
def test_importing_opsmith_imports_no_dtensor_and_rules_are_there_nevertheless() -> None:
    program = """
import sys, opsmith, torch
from jaxtyping import Float
from torch import Tensor

@opsmith.op("early::double", parallel_dims=("N",))
def double(x: Float[Tensor, "N"]) -> Float[Tensor, "N"]:
    return x * 2

double(torch.ones(2))
assert "torch.distributed.tensor" not in sys.modules
import torch._inductor.ir, torch.distributed.tensor.parallel  # what is waited for
from torch.distributed.tensor import DTensor, Shard, init_device_mesh
assert not any("post_import" in type(one).__module__ for one in sys.meta_path)
torch.distributed.init_process_group("fake", rank=0, world_size=2)
mesh = init_device_mesh("cpu", (2,))
print(double(DTensor.from_local(torch.ones(3), mesh, [Shard(0)])).shape)
"""
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert ran.stdout == "torch.Size([6])\n", ran.stderr
