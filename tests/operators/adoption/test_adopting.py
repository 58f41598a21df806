"""Operators that exist already, before anything is exported: what is kept, and every refusal."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from jaxtyping import Float
from torch import Tensor

import opsmith
from opsmith import ArgumentError, DeclarationError, checks
from opsmith.operators.adoption import adopted


def function(name: str, **parts: Any) -> Any:
    """A Function that gives k * a, as people write them, with some of its parts replaced."""

    def forward(ctx, a, k=2.0):
        ctx.save_for_backward(a)
        ctx.k = k
        return k * a

    def backward(ctx, grad):
        (a,) = ctx.saved_tensors
        return ctx.k * grad + 0 * a, None

    parts = {"forward": forward, "backward": backward, **parts}
    made = {key: staticmethod(part) for key, part in parts.items()}
    return type(name, (torch.autograd.Function,), {"__doc__": f"The {name}.", **made})


def refused(kind: type[Exception], call: Any, *args: Any, **kwargs: Any) -> str:
    with pytest.raises(kind) as caught:
        call(*args, **kwargs)
    return str(caught.value)


def test_a_function_keeps_its_name_its_text_and_its_gradient() -> None:
    Scaled = function("Scaled")
    scaled = opsmith.adopt(Scaled, "adopting::scaled")
    assert str(scaled.overload._schema) == "adopting::scaled(Tensor a, float k=2.) -> Tensor"
    assert scaled.reference.__name__ == "Scaled"
    assert scaled.reference.__doc__ == "The Scaled."
    assert scaled.reference.__module__ == __name__
    a = torch.ones(3, dtype=torch.float64, requires_grad=True)
    Scaled.apply(a, 5.0).sum().backward()
    assert a.grad is not None and a.grad.tolist() == [5, 5, 5]
    assert not scaled.reference(a).requires_grad
    assert scaled.onnx_translations == []


def test_the_functions_gradient_sees_what_is_needed() -> None:
    seen: list[Any] = []

    def forward(ctx, a, b):
        seen.append((ctx.needs_input_grad, torch.is_grad_enabled()))
        ctx.mark_non_differentiable()
        ctx.set_materialize_grads(True)
        return a + b

    both = opsmith.adopt(
        function("Both", forward=forward, backward=lambda ctx, grad: (grad, grad)), "adopting::both"
    )
    both(torch.ones(2), torch.ones(2, requires_grad=True))
    assert seen[0] == ((False, False), False)
    assert seen[-1] == ((False, True), False)


def test_a_symbolic_is_kept_as_the_first_translation() -> None:
    def symbolic(g, a, k=2.0):
        return g.op("Mul", a, a)

    named = opsmith.adopt(function("Named", symbolic=symbolic), "adopting::named")
    (translation,) = named.onnx_translations
    assert translation.how is symbolic
    assert translation.symbolic


def test_a_parameter_without_an_annotation_is_what_its_default_is() -> None:
    def forward(ctx, a, k=2.0, n=1, on=True, how="a", size=(2, 2), scales=(1, 0.5), bias=None):
        return a * k

    guessed = opsmith.adopt(function("Guessed", forward=forward), "adopting::guessed")
    assert [str(p.type) for p in guessed.signature.parameters] == [
        "Tensor",
        "float",
        "int",
        "bool",
        "str",
        "tuple[int, int]",
        "tuple[float, float]",
        "Tensor",
    ]
    assert guessed.signature.parameters[-1].optional


def signs(name: str, bound: float) -> Any:
    """A Function that gives signs; its gradient passes where x is not beyond a bound."""

    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.sign()

    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        return grad * (x.abs() <= bound)

    return function(name, forward=forward, backward=backward)


def passing(x: Float[Tensor, "N"]) -> Float[Tensor, "N"]:
    """Say what the gradient flows through, beside a value that has none."""
    passed = torch.where(x.abs() <= 1, x, 0)
    return x.sign() + (passed - passed.detach())


def silent(x: Float[Tensor, "N"]) -> Float[Tensor, "N"]: ...


@pytest.mark.slow(cases=3)
@pytest.mark.parametrize(
    ("bound", "reference", "codes"),
    [
        (1.0, passing, set()),
        (2.0, passing, {"OPS-GRADIENT-WRONG"}),
        (1.0, silent, {"OPS-GRADIENT-NUMERIC"}),  # nothing says that it is meant
    ],
)
def test_a_gradient_that_is_not_the_derivative_is_stated_by_the_reference(
    bound: float, reference: Any, codes: set[str]
) -> None:
    name = f"{reference.__name__}_{bound:.0f}"
    sign = opsmith.adopt(signs(name, bound), f"adopting::{name}", annotations=reference)
    rows = ["reference", "gradient", "gradcheck"]
    report = checks.run(sign, select=rows, isolate=False)
    assert {row.code for row in report.rows if row.code} == codes, report.rows


def test_annotations_that_opsmith_does_not_read_are_refused_by_name() -> None:
    def forward(ctx, a: complex) -> Tensor: ...

    message = refused(
        DeclarationError, opsmith.adopt, function("Odd", forward=forward), "adopting::odd"
    )
    assert message.startswith(
        "adopting::odd: parameter 'a: complex': complex cannot be an argument"
    )


@pytest.mark.parametrize(
    ("value", "kind"), [(True, "bool"), (3, "int"), (2.0, "float"), ("x", "str")]
)
def test_a_number_taken_for_a_tensor_is_said(value: Any, kind: str) -> None:
    def forward(ctx, x, factor):
        return x * factor

    Guess = function("Guess", forward=forward, backward=lambda ctx, grad: (grad, None))
    opsmith.adopt(Guess, f"adopting::guess_{kind}")
    assert refused(ArgumentError, Guess.apply, torch.ones(1), value) == (
        f"adopting::guess_{kind}: argument 'factor' is {value!r}, expected a tensor. Where it is "
        f"not a tensor, annotate forward's parameter: factor: {kind}."
    )


def test_another_error_of_a_function_stays_what_it_is() -> None:
    def forward(ctx, x):
        raise RuntimeError("out of luck")

    Failing = function("Failing", forward=forward)
    opsmith.adopt(Failing, "adopting::failing")
    with pytest.raises(RuntimeError, match="out of luck"):
        Failing.apply(torch.ones(1))


def test_what_a_forward_returns_of_its_arguments_is_copied() -> None:
    def forward(ctx, a, b):
        return a[1:], a + b, b

    def backward(ctx, *grads):
        _, total, last = grads
        return total, total + last

    views = opsmith.adopt(
        function("Views", forward=forward, backward=backward, annotations=None),
        "adopting::views",
        annotations=typed,
    )
    a, b = torch.arange(3.0), torch.ones(3)
    first, total, last = views(a, b)
    assert first.tolist() == [1, 2] and total.tolist() == [1, 2, 3] and last.tolist() == [1, 1, 1]
    pointers = {x.untyped_storage().data_ptr() for x in (a, b, first, total, last)}
    assert len(pointers) == 5


def test_a_view_that_a_forward_returns_has_the_gradient_of_its_backward() -> None:
    def forward(ctx, x):
        return x.t()

    def backward(ctx, grad):
        return grad.t()

    def turned(x: Float[Tensor, "N C"]) -> Float[Tensor, "C N"]: ...

    operator = opsmith.adopt(
        function("Turned", forward=forward, backward=backward),
        "adopting::turned",
        annotations=turned,
    )
    report = checks.run(operator, select=["gradient", "gradcheck"], isolate=False)
    assert [row.status for row in report.rows] == ["not applicable", "passed"], report.explain()


def typed(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor, Tensor]: ...


def test_a_forward_that_writes_into_its_arguments_says_what_to_write() -> None:
    def forward(ctx, a):
        ctx.mark_dirty(a)
        return a.add_(1)

    written = opsmith.adopt(function("Written", forward=forward), "adopting::written")
    assert refused(DeclarationError, written, torch.ones(1)) == (
        "adopting::written: its forward writes into its arguments (mark_dirty). Write it as an "
        "operator with mutates_args (opsmith.op)."
    )


def test_a_forward_that_needs_data_cannot_be_traced() -> None:
    def forward(ctx, a):
        return a * a.sum().item()

    needs = opsmith.adopt(function("Needs", forward=forward), "adopting::needs")
    with torch._subclasses.FakeTensorMode() as mode:
        message = refused(opsmith.OpsmithError, needs, mode.from_tensor(torch.ones(3)))
    assert message.startswith(
        "adopting::needs: its forward does not run without data, as tracing needs (DataDependent"
    )
    assert message.endswith(
        'Annotate it with shapes, as in Float[Tensor, "N C"], or register_fake.'
    )


def like(x: Float[Tensor, "*n"]) -> Float[Tensor, "*n"]:
    return x


def subtracted(self: Float[Tensor, "*n"], other: Float[Tensor, "*n"], *, alpha: int = 1) -> Tensor:
    return other - alpha * self


def subtracted_by_text(
    self: Float[Tensor, "*n"], other: Float[Tensor, "*n"], *, alpha: str
) -> Tensor:
    return self


def clipped(self: Tensor, min: float | None = None, max: float | None = None) -> Tensor:
    return self.clamp(min, max)


def swapped(other: Float[Tensor, "*n"], self: Float[Tensor, "*n"], *, alpha: int = 1) -> Tensor:
    return self


def test_a_number_of_pytorchs_is_an_int_or_a_float() -> None:
    difference = opsmith.adopt("aten::rsub.Tensor", subtracted)
    assert difference(torch.ones(2), torch.ones(2), alpha=3).tolist() == [-2, -2]
    assert adopted.find_adopted(torch.ops.aten.rsub.Tensor) is difference
    assert adopted.find_adopted(torch.ops.aten.sub.Tensor) is None
    assert adopted.find_adopted([]) is None
    assert adopted._again("aten.rsub.Tensor") is difference
    opsmith.adopt("aten::clip", clipped)


def test_every_refusal_to_adopt_says_what_there_is() -> None:
    assert refused(DeclarationError, opsmith.adopt, function("Bare")) == (
        'adopt(Bare): give the new operator a name, adopt(Bare, "my_ops::bare")'
    )
    assert refused(DeclarationError, opsmith.adopt, 3) == (
        "adopt(3): takes an operator's name or a torch.autograd.Function"
    )
    for name in ("adopting::nothing", "adopting"):
        assert refused(DeclarationError, opsmith.adopt, name, like) == (
            f"{name}: PyTorch has no such operator. Import the package that defines it first."
        )
    assert refused(DeclarationError, opsmith.adopt, "aten::asinh.none", like) == (
        "aten::asinh.none: there is no such overload; there are aten::asinh, aten::asinh.out, "
        "aten::asinh.int, aten::asinh.float, aten::asinh.complex, aten::asinh.Scalar"
    )
    assert refused(DeclarationError, opsmith.adopt, "aten::asinh", like) == (
        "aten::asinh: the declaration differs from the operator.\n"
        "  declared: aten::asinh(Tensor x) -> Tensor\n"
        "  operator: aten::asinh(Tensor self) -> Tensor\n"
        "  argument 1 is called 'self', declared as 'x'"
    )
    for other in (subtracted_by_text, swapped, like):
        message = refused(DeclarationError, opsmith.adopt, "aten::rsub.Tensor", other)
        assert message.startswith(
            "aten::rsub: the declaration differs from the operator.\n  declared: "
        )
    assert refused(opsmith.OpsmithError, adopted._again, "aten.sub.Tensor") == (
        "aten.sub.Tensor was not adopted in this process"
    )


# Operators that no model of other tests calls: what is adopted stays so in this process.


def test_an_overload_is_called_by_its_own_name():
    @opsmith.adopt("aten::lerp.Scalar")
    def lerp(
        self: Float[Tensor, "*shape"], end: Float[Tensor, "*shape"], weight: float
    ) -> Float[Tensor, "*shape"]:
        return self + weight * (end - self)

    assert lerp.name == "aten::lerp.Scalar"
    # An argument of PyTorch's operators is called self.
    assert lerp(self=torch.zeros(2), end=torch.ones(2), weight=0.5).tolist() == [0.5, 0.5]
    report = checks.run(lerp, select=["fake"], examples=3, isolate=False)
    assert [row.status for row in report.rows] == ["passed"]


@pytest.mark.slow
def test_an_operator_of_other_operators_is_checked():
    @opsmith.adopt("aten::kron")
    def kron(self: Float[Tensor, "N C"], other: Float[Tensor, "M K"]) -> Float[Tensor, "N*M C*K"]:
        return torch.einsum("nc,mk->nmck", self, other).flatten(0, 1).flatten(1)

    report = checks.run(kron, select=["reference"], examples=3, isolate=False)
    assert [row.status for row in report.rows] == ["passed"]


def test_arguments_at_the_end_keep_their_defaults_where_they_are_left_out():
    @opsmith.adopt("aten::cumprod")
    def cumprod(self: Float[Tensor, "N C"], dim: int) -> Float[Tensor, "N C"]:
        return torch.cumprod(self, dim)

    assert cumprod(torch.full((1, 3), 2.0), 1).tolist() == [[2, 4, 8]]
    with pytest.raises(DeclarationError, match="the operator has 2 arguments, the declaration 1"):

        @opsmith.adopt("aten::bmm")
        def bmm(self: Float[Tensor, "N C C"]) -> Float[Tensor, "N C C"]:
            return self


@pytest.mark.slow
def test_an_empty_body_stands_for_the_operator_itself_which_models_keep(tmp_path):
    @opsmith.adopt("aten::add.Tensor")
    def add(
        self: Float[Tensor, "*shape"], other: Float[Tensor, "*shape"], *, alpha: float = 1.0
    ) -> Float[Tensor, "*shape"]: ...

    ones = torch.ones(2)
    assert add.reference(ones, ones, alpha=2.0).tolist() == [3, 3]

    class Model(torch.nn.Module):
        def forward(self, x):
            return x + x

    opsmith.export(Model(), (ones,), target="onnx", out=tmp_path / "out", say=None)


def test_what_has_no_reference_is_not_inlined(tmp_path):
    library = torch.library.Library("adopt_unexplained", "DEF")
    library.define("same(Tensor x) -> Tensor")
    library.impl("same", torch.clone, "CompositeExplicitAutograd")

    @opsmith.adopt("adopt_unexplained::same")
    def same(x: Float[Tensor, "N"]) -> Float[Tensor, "N"]: ...

    class Model(torch.nn.Module):
        def forward(self, x):
            return same(x)

    with pytest.raises(opsmith.ExportError, match=r"no reference, .* in place of '\.\.\.'"):
        opsmith.export(Model(), (torch.ones(2),), target="onnx", form="inline", out=tmp_path / "o")
    library._destroy()
