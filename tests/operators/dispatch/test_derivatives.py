"""Every derivative is right, or an error that says what is missing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

import pytest
import torch
from jaxtyping import Float, Int64
from torch import Tensor
from torch.autograd import forward_ad

import opsmith
import opsmith.testing
from opsmith import DifferentiationError, Index, NonDifferentiable


@opsmith.op("test_derivatives::wave", autograd="reference")
def wave(x: Float[Tensor, "*s"], y: Float[Tensor, "*s"], k: float = 2.0) -> Float[Tensor, "*s"]:
    """Differentiated through its reference."""
    return x * y.sin() * k


@opsmith.op("test_derivatives::pick")
def pick(
    x: Float[Tensor, "N C"],
    index: Annotated[Int64[Tensor, "P"], Index("N")],
    *,
    scale: float = 1.0,
) -> Float[Tensor, "P C"]:
    """Differentiated by hand."""
    return x[index] * scale


def _setup(ctx: Any, inputs: Any, keyword_only_inputs: Any, output: Tensor) -> None:
    x, index = inputs
    ctx.save_for_backward(index)
    ctx.rows = x.shape[0]
    ctx.scale = keyword_only_inputs["scale"]


@pick.register_autograd(setup_context=_setup)
def _pick_backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
    (index,) = ctx.saved_tensors
    zeros = grad.new_zeros(ctx.rows, grad.shape[1])
    return zeros.index_add(0, index, grad * ctx.scale), None


@opsmith.op("test_derivatives::stop")
def stop(x: Float[Tensor, "*s"]) -> Float[Tensor, "*s"]:
    """Has no derivative."""
    return x * 2


@opsmith.op("test_derivatives::left", autograd="reference")
def left(x: Float[Tensor, "*s"]) -> Float[Tensor, "*s"]:
    """Claims a derivative, but leaves PyTorch."""
    return x.detach() * 2


@opsmith.op("test_derivatives::many", autograd="reference")
def many(
    w: Float[Tensor, "N"], xs: list[Float[Tensor, "N"]]
) -> tuple[Float[Tensor, "2*N"], Int64[Tensor, ""], Float[Tensor, "N"]]:
    """Lists, and a result of integers."""
    total = torch.stack([x * w for x in xs]).sum(0)
    return torch.cat([total, total**2]), torch.tensor(len(xs)), total.sin()


X = torch.linspace(-1, 1, 6, dtype=torch.float64).reshape(2, 3)
Y = torch.linspace(0.5, 2, 6, dtype=torch.float64).reshape(2, 3)


def test_first_and_second_derivatives_from_the_reference() -> None:
    inputs = (X.clone().requires_grad_(), Y.clone().requires_grad_())
    assert torch.autograd.gradcheck(wave, inputs, check_forward_ad=True, check_batched_grad=True)
    assert torch.autograd.gradgradcheck(wave, inputs)


def _transforms() -> dict[str, Callable[[Callable[..., Tensor]], Any]]:
    func = torch.func
    return {
        "grad": lambda f: func.grad(f)(X, Y),
        "vjp": lambda f: func.vjp(f, X, Y)[1](torch.ones((), dtype=torch.float64)),
        "jvp": lambda f: func.jvp(f, (X, Y), (Y, X))[1],
        "jacrev": lambda f: func.jacrev(func.grad(f, 1))(X, Y),
        "jacfwd": lambda f: func.jacfwd(func.grad(f))(X, Y),
        "hessian": lambda f: func.hessian(f, argnums=(0, 1))(X, Y),
        "vmap of grad": lambda f: func.vmap(func.grad(f))(X, Y),
        "grad of vmap": lambda f: func.grad(lambda a, b: func.vmap(f)(a, b).sum())(X, Y),
        "linearize": lambda f: func.linearize(f, X, Y)[1](Y, X),
    }


@pytest.mark.parametrize("name", _transforms())
def test_torch_func_gives_what_plain_pytorch_gives(name: str) -> None:
    transform = _transforms()[name]
    ours = transform(lambda x, y: wave(x, y).sum())
    plain = transform(lambda x, y: (x * y.sin() * 2).sum())
    torch.testing.assert_close(ours, plain)


def test_a_backward_written_by_hand() -> None:
    index = torch.tensor([0, 1, 1])
    x = X.clone().requires_grad_()
    assert torch.autograd.gradcheck(lambda x: pick(x, index, scale=3.0), (x,))
    for scale in (1.0, 3.0):
        ours = torch.func.vjp(lambda x, s=scale: pick(x, index, scale=s), X)[1](
            torch.ones(3, 3).double()
        )
        plain = torch.func.vjp(lambda x, s=scale: x[index] * s, X)[1](torch.ones(3, 3).double())
        torch.testing.assert_close(ours, plain)
    jacobian = torch.func.jacrev(lambda x: pick(x, index))(X)
    torch.testing.assert_close(jacobian, torch.func.jacrev(lambda x: x[index])(X))


def test_compiled_derivatives() -> None:
    x, y = X.clone().requires_grad_(), Y.clone().requires_grad_()
    compiled = torch.compile(lambda x, y: wave(x, y) + 1, fullgraph=True, backend="aot_eager")
    grads = torch.autograd.grad(compiled(x, y).sum(), (x, y))
    torch.testing.assert_close(grads, torch.autograd.grad((x * y.sin() * 2).sum(), (x, y)))


def test_a_list_an_optional_and_a_result_without_gradient() -> None:
    xs = [X[0].clone().requires_grad_(), X[1].clone().requires_grad_()]
    w = Y[0].clone().requires_grad_()
    both, count, sines = many(w, xs)
    assert not count.requires_grad
    plain = sum(x * w for x in xs)
    expected = torch.autograd.grad(
        (torch.cat([plain, plain**2]).sum() + plain.sin().sum()), [*xs, w]
    )
    torch.testing.assert_close(torch.autograd.grad(both.sum() + sines.sum(), [*xs, w]), expected)


def _message(call: Callable[[], Any]) -> str:
    with pytest.raises(DifferentiationError) as caught:
        call()
    return str(caught.value)


def test_backward_through_an_operator_without_a_gradient_says_so() -> None:
    x = X.clone().requires_grad_()
    y = stop(x)
    assert y.requires_grad
    message = _message(lambda: y.sum().backward())
    assert message.startswith("test_derivatives::stop: has no gradient")
    assert "stop.register_autograd(backward, setup_context=...)" in message
    assert 'autograd="reference"' in message


def test_forward_mode_without_a_derivative_says_so() -> None:
    index = torch.tensor([0])
    for call in (
        lambda: torch.func.jvp(lambda x: pick(x, index), (X,), (X,)),
        lambda: torch.func.jacfwd(lambda x: stop(x))(X),
        lambda: torch.func.jvp(stop, (X,), (X,)),
    ):
        assert "has no forward-mode derivative" in _message(call)
    with forward_ad.dual_level():
        assert "has no forward-mode" in _message(lambda: stop(forward_ad.make_dual(X, X)))


def test_a_reference_that_leaves_pytorch_is_found_out() -> None:
    x = X.clone().requires_grad_()
    assert "does not depend on its arguments differentiably" in _message(
        lambda: left(x).sum().backward()
    )
    assert "does not depend on its arguments differentiably" in _message(
        lambda: torch.func.grad(lambda x: left(x).sum())(X)
    )


def test_a_backward_of_the_wrong_length_is_said() -> None:
    @opsmith.op("test_derivatives::short")
    def short(x: Float[Tensor, "N"], k: int) -> Float[Tensor, "N"]:
        return x * k

    short.register_autograd(lambda ctx, grad: grad)
    x = torch.ones(3, requires_grad=True)
    assert "returned 1 gradients, expected 2, one for each of x, k" in _message(
        lambda: short(x, 2).sum().backward()
    )


def test_nothing_is_kept_alive_that_backward_does_not_need() -> None:
    import gc
    import weakref

    index = torch.tensor([0, 1])
    x = X.clone().requires_grad_()
    intermediate = x * 2
    alive = weakref.ref(intermediate)
    result = pick(intermediate, index)
    del intermediate
    gc.collect()
    assert alive() is None
    result.sum().backward()


def test_a_saved_tensor_that_was_overwritten_is_found() -> None:
    @opsmith.op("test_derivatives::fill", mutates_args=("x",))
    def fill(x: Float[Tensor, "*s"]) -> None:
        x.fill_(0)

    x = X.clone().requires_grad_()
    doubled = x * 2
    y = wave(doubled, doubled)
    with torch.no_grad():
        fill(doubled)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


def test_mutation_with_gradients_is_refused() -> None:
    @opsmith.op("test_derivatives::write", mutates_args=("y",))
    def write(x: Float[Tensor, "*s"], y: Float[Tensor, "*s"]) -> None:
        y.copy_(x)

    x = X.clone().requires_grad_()
    assert "writes into 'y', and declares no gradient, but an argument requires one" in _message(
        lambda: write(x, torch.empty_like(X))
    )
    with torch.no_grad():
        write(x, y := torch.empty_like(X))
    assert torch.equal(x.detach(), y)


def test_needs_input_grad_has_one_entry_for_each_argument_wherever_it_is_asked() -> None:
    needs: list[Any] = []

    @opsmith.op("test_derivatives::asked")
    def asked(
        xs: list[Float[Tensor, "N"]], k: float, y: Float[Tensor, "N"], z: Tensor | None = None
    ) -> Float[Tensor, "N"]:
        return sum(xs) * k * y

    def setup(ctx: Any, inputs: Any, output: Any) -> None:
        needs.append(ctx.needs_input_grad)
        xs, k, y, _ = inputs
        # As PyTorch's tutorial on C++ extensions has it: what no gradient needs is not saved.
        ctx.save_for_backward(*(xs if ctx.needs_input_grad[2] else [None] * len(xs)), y)
        ctx.k = k

    def backward(ctx: Any, grad: Tensor) -> Any:
        needs.append(ctx.needs_input_grad)
        *xs, y = ctx.saved_tensors
        return [grad * ctx.k * y for _ in xs], None, grad * ctx.k * sum(xs), None

    asked.register_autograd(backward, setup_context=setup)
    asked.register_fake(lambda xs, k, y, z=None: torch.empty_like(y))
    a, b, y = torch.randn(3), torch.randn(3, requires_grad=True), torch.randn(3, requires_grad=True)
    asked([a, b], 2.0, y).sum().backward()
    assert needs == [([False, True], False, True, False)] * 2
    torch.testing.assert_close(b.grad, 2 * y.detach())
    torch.testing.assert_close(y.grad, 2 * (a + b).detach())
    found = torch.func.grad(lambda y: asked([a, b.detach()], 2.0, y).sum())(y.detach())
    torch.testing.assert_close(found, y.grad)


@opsmith.op("test_derivatives::warp", autograd="reference")
def warp(
    x: Float[Tensor, "N"],
    grid: Annotated[Float[Tensor, "N"], NonDifferentiable()],
    more: Annotated[list[Float[Tensor, "N"]], NonDifferentiable()],
) -> Float[Tensor, "N"]:
    """Takes gradients with respect to `x` alone."""
    return sum(more, x * grid.sin())


@opsmith.op("test_derivatives::warp_by_hand")
def warp_by_hand(
    x: Float[Tensor, "N"], grid: Annotated[Float[Tensor, "N"], NonDifferentiable()]
) -> Float[Tensor, "N"]:
    """The same, with a backward that knows nothing of `grid`."""
    return x * grid.sin()


@warp_by_hand.register_autograd(
    setup_context=lambda ctx, inputs, output: ctx.save_for_backward(inputs[1])
)
def _(ctx: Any, grad: Tensor) -> Any:
    assert ctx.needs_input_grad == (True, False)
    return grad * ctx.saved_tensors[0].sin(), torch.full_like(grad, 7)


def test_no_gradient_reaches_what_is_declared_not_differentiable() -> None:
    x, grid, more = (torch.randn(3, requires_grad=True) for _ in range(3))
    for call, others in (
        (lambda: warp(x, grid, [more]), [grid, more]),
        (lambda: warp_by_hand(x, grid), [grid]),
    ):
        result = call()
        grads = torch.autograd.grad(result.sum(), [x, *others], allow_unused=True)
        torch.testing.assert_close(grads[0], grid.sin().detach())
        assert grads[1:] == (None,) * len(others)
    assert not warp(x.detach(), grid, [more]).requires_grad
    assert not warp_by_hand(x.detach(), grid).requires_grad


def test_numbers_taken_by_name_pass_what_is_not_differentiable() -> None:
    @opsmith.op("test_derivatives::warp_scaled", autograd="reference")
    def warp_scaled(
        x: Float[Tensor, "N"],
        grid: Annotated[Float[Tensor, "N"], NonDifferentiable()],
        *,
        scale: float = 1.0,
    ) -> Float[Tensor, "N"]:
        return x * grid.sin() * scale

    x, grid = torch.randn(3, requires_grad=True), torch.randn(3, requires_grad=True)
    warp_scaled(x, grid, scale=3.0).sum().backward()
    torch.testing.assert_close(x.grad, 3 * grid.sin().detach())
    assert grid.grad is None


def test_no_tangent_passes_what_is_declared_not_differentiable() -> None:
    x, grid, more = torch.randn(3), torch.randn(3), [torch.randn(3)]
    _, tangent = torch.func.jvp(
        lambda x, grid: warp(x, grid, more), (x, grid), (torch.ones(3), torch.ones(3))
    )
    torch.testing.assert_close(tangent, grid.sin())
    assert not torch.func.jacfwd(lambda grid: warp(x, grid, more))(grid).any()
    assert not torch.func.grad(lambda grid: warp(x, grid, more).sum())(grid).any()
    assert not torch.func.hessian(lambda x: warp(x, x, more).sum())(x).any()


def test_gradient_checks_leave_out_what_is_not_differentiable() -> None:
    names = ["gradient", "opcheck"]
    for operator in (warp, warp_by_hand):
        report = opsmith.testing.check(operator, select=names, examples=4)
        assert {row.status for row in report.rows if row.check in names} == {"passed"}


def test_only_tensors_are_marked() -> None:
    def number(x: Float[Tensor, "N"], k: Annotated[float, NonDifferentiable()]) -> Tensor: ...
    def forgotten(x: Annotated[Float[Tensor, "N"], NonDifferentiable]) -> Tensor: ...

    for function, message in (
        (number, "parameter 'k: .*': only tensors have gradients; leave the mark out"),
        (forgotten, r"NonDifferentiable is a class; write NonDifferentiable\(\.\.\.\)"),
    ):
        with pytest.raises(opsmith.DeclarationError, match=message):
            opsmith.op("test_derivatives::marked", function)


def test_a_result_that_does_not_depend_on_an_argument_has_a_gradient_of_zero() -> None:
    @opsmith.op("test_derivatives::constant", autograd="reference")
    def constant(x: Float[Tensor, "N"]) -> tuple[Float[Tensor, "N"], Float[Tensor, "N"]]:
        return torch.ones_like(x), torch.full_like(x, fill_value=x.shape[0])

    @opsmith.op("test_derivatives::sign", autograd="reference")
    def sign(x: Float[Tensor, "N"]) -> Float[Tensor, "N"]:
        return (x > 0).to(x.dtype)

    for function in (lambda x: constant(x)[1], sign):
        x = torch.randn(3, requires_grad=True)
        (x * function(x)).sum().backward()
        assert torch.equal(x.grad, function(x).detach())
        assert not torch.func.grad(lambda x, f=function: f(x).sum())(x).any()
        assert not torch.func.jacrev(function)(x).any()


def test_a_result_for_which_only_integers_were_read_has_a_gradient_of_zero() -> None:
    @opsmith.op("test_derivatives::parts", autograd="reference")
    def parts(x: Float[Tensor, "N"], ends: Int64[Tensor, "E"]) -> Float[Tensor, "E"]:
        sums, first = [], 0
        for end in ends.tolist():
            sums.append(x[first:end].sum() if first < end else x.new_zeros(()))
            first = end
        return torch.stack(sums) if sums else x.new_zeros(0)

    for ends in ([], [0], [0, 0]):
        x = torch.randn(3, requires_grad=True)
        (2 * x.sum() + parts(x, torch.tensor(ends, dtype=torch.int64)).sum()).backward()
        assert torch.equal(x.grad, torch.full((3,), 2.0))


def test_a_compiled_gradient_of_a_reference_that_reads_values_says_where_and_what_to_do() -> None:
    @opsmith.op("test_derivatives::first_rows", autograd="reference")
    def first_rows(x: Float[Tensor, "N"], count: Int64[Tensor, "1"]) -> Float[Tensor, "N"]:
        kept = x[: count.item()]
        return torch.cat([kept, x.new_zeros(len(x) - len(kept))])

    x, count = torch.randn(3, requires_grad=True), torch.tensor([2])
    first_rows(x, count).sum().backward()
    assert x.grad.tolist() == [1, 1, 0]
    compiled = torch.compile(first_rows, fullgraph=True, backend="aot_eager")
    place = r"\(\S*test_derivatives.py:\d+\)"
    message = (
        "reads values of its arguments, to branch or as an index of no dimensions, which a trace "
        f"does not have {place}. Declare its"
    )
    with pytest.raises(Exception, match=message):
        compiled(x, count).sum().backward()
    with torch.no_grad():
        assert torch.equal(compiled(x, count), first_rows(x, count))


def test_a_backward_of_a_list_is_told_what_is_needed_and_gives_as_many() -> None:
    @opsmith.op("test_derivatives::joined")
    def joined(
        a: Float[Tensor, "N"] | None, xs: list[Float[Tensor, "N"]], more: list[Float[Tensor, "N"]]
    ) -> Float[Tensor, "N"]:
        return torch.stack([*xs, *more]).sum(0)

    seen, given = [], 2

    @joined.register_autograd
    def backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
        seen.append(ctx.needs_input_grad)
        return None, [grad * (n + 2) for n in range(given)], None

    x, y, z = (torch.ones(3, requires_grad=needed) for needed in (True, False, True))
    joined(None, [x, y], [z, x]).sum().backward()
    assert seen == [(False, [True, False], [True, True])]
    assert x.grad is not None and x.grad.tolist() == [2, 2, 2]
    assert y.grad is None and z.grad is None
    given = 3
    with pytest.raises(
        opsmith.errors.DifferentiationError,
        match=r"joined: its backward returned 3 gradients for the list 'xs', expected 2\.",
    ):
        joined(None, [x, y], []).sum().backward()


def test_zeros_without_memory_may_be_indices_of_a_reference_that_is_differentiated() -> None:
    @opsmith.op("test_derivatives::picked", autograd="reference")
    def picked(x: Float[Tensor, "N C"], rows: Int64[Tensor, "P"]) -> Float[Tensor, "P C"]:
        return x[rows]

    x, rows = torch.ones(3, 2), torch._efficientzerotensor((2,), dtype=torch.int64)
    x.requires_grad_()
    picked(x, rows).sum().backward()
    assert x.grad is not None
    assert x.grad.tolist() == [[2, 2], [0, 0], [0, 0]]
    primal, tangent = torch.func.jvp(lambda x: picked(x, rows), (x.detach(),), (x.detach(),))
    assert primal.tolist() == tangent.tolist() == [[1, 1], [1, 1]]
