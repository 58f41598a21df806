"""Operators that exist already, exported to ONNX Runtime."""

from __future__ import annotations

from typing import Any

import ort_operators as ops
import pytest
import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.library import CustomOpDef

import opsmith
from opsmith import DeclarationError, ExportError

pytestmark = pytest.mark.slow(cases=2)

EXPORTERS = ("dynamo", "torchscript")
ROWS = {0: torch.export.Dim("N")}


class Call(nn.Module):
    def __init__(self, function: Any) -> None:
        super().__init__()
        self.function = function

    def forward(self, *inputs: Any) -> Any:
        return self.function(*inputs)


def forms(model: Any) -> dict[str, str]:
    return {use.name: use.form for use in model.artifact.manifest.operators}


@pytest.fixture(scope="module")
def asinh() -> Any:
    @opsmith.adopt("aten::asinh")
    def asinh(self: Float[Tensor, "*n"]) -> Float[Tensor, "*n"]:
        return torch.sign(self) * torch.log(self.abs() + torch.sqrt(self * self + 1))

    asinh.register_onnx("Asinh", opset=9)
    return asinh


@pytest.mark.parametrize("exporter", EXPORTERS)
def test_a_mapping_that_an_exporter_lacks(export, exporter, asinh):
    model = export(
        Call(torch.asinh), (torch.randn(4, 3),), exporter=exporter, dynamic_shapes=((ROWS,),)
    )
    assert forms(model) == {"aten::asinh": "standard"}


def test_a_reference_in_place_of_pytorchs_own(export, asinh):
    assert forms(export(Call(torch.asinh), (torch.randn(4, 3),), form="inline")) == {
        "aten::asinh": "inline"
    }
    with pytest.raises(ExportError, match="the TorchScript exporter cannot inline PyTorch's own"):
        export(Call(torch.asinh), (torch.randn(4),), form="inline", exporter="torchscript")


@pytest.mark.parametrize("exporter", EXPORTERS)
def test_a_foreign_operator_may_become_one_of_ours(export, exporter):
    """As torchvision::deform_conv2d becomes the gallery's."""
    with torch.library._scoped_library("ort_other", "FRAGMENT") as other:
        other.define("flipped(Tensor x, int times) -> Tensor")
        other.impl("flipped", lambda x, times: x.flip(-1) * times, "CompositeExplicitAutograd")
        torch.library.register_fake(
            "ort_other::flipped", lambda x, times: torch.empty_like(x), lib=other
        )

        @opsmith.adopt("ort_other::flipped")
        def flipped(x: Float[Tensor, "N M"], times: int) -> Float[Tensor, "N M"]:
            return ops.reverse(x) * times

        model = export(
            # The trace shows a size as a tensor; as an argument that the export fixed it is none.
            Call(lambda x: torch.ops.ort_other.flipped(x, x.shape[1] - 1)),
            (torch.randn(4, 3),),
            exporter=exporter,
            form={"ort_test::reverse": "library"},
            dynamic_shapes=((ROWS,),),
        )
    assert forms(model) == {"ort_other::flipped": "inline", "ort_test::reverse": "library"}


def make_function(**parts: Any) -> Any:
    """A Function that gives k·a + b, as people write them."""

    def forward(ctx, a, b, k=2.0):
        ctx.save_for_backward(a)
        ctx.k = k
        return k * a + b

    def backward(ctx, grad):
        (a,) = ctx.saved_tensors
        return ctx.k * grad + 0 * a, grad, None

    parts = {"forward": forward, "backward": backward, **parts}
    methods = {name: staticmethod(part) for name, part in parts.items()}
    return type("Added", (torch.autograd.Function,), methods)


@pytest.mark.parametrize("exporter", EXPORTERS)
def test_a_function_becomes_an_operator_in_one_call(export, exporter):
    def symbolic(g, a, b, k=2.0):
        return g.op("Add", g.op("Mul", a, g.op("Constant", value_t=torch.tensor(k))), b)

    function = make_function(symbolic=symbolic)
    a, b = (torch.randn(3, 4, requires_grad=True) for _ in range(2))
    before = torch.autograd.grad(function.apply(a, b, 3.0).sum(), (a, b))
    added = opsmith.adopt(function, f"ort_adopted::added_{exporter}")

    # The model, its gradients and its calls stay what they were.
    after = torch.autograd.grad(function.apply(a, b, 3.0).sum(), (a, b))
    assert all(torch.equal(x, y) for x, y in zip(before, after, strict=True))
    assert torch.autograd.gradcheck(added, (a.double(), b.double()))

    model = export(
        Call(lambda a, b: function.apply(a, b, 3.0)),
        (a.detach(), b.detach()),
        exporter=exporter,
        dynamic_shapes=((ROWS, ROWS),),
    )
    assert forms(model) == {added.name: "standard"}


@pytest.mark.long
def test_a_symbolic_that_needs_torchscript_says_so(export):
    function = make_function(symbolic=lambda g, a, b, k: g.at("add", a, b))
    opsmith.adopt(function, "ort_adopted::needs_torchscript")
    inputs = (torch.randn(3), torch.randn(3))
    with pytest.raises(ExportError, match=r"uses g\.at, which only the TorchScript exporter has"):
        export(Call(lambda a, b: function.apply(a, b)), inputs, form="standard")
    # Left to itself, another form is found.
    model = export(Call(lambda a, b: function.apply(a, b)), inputs)
    assert forms(model) == {"ort_adopted::needs_torchscript": "inline"}


def test_annotations_of_a_function_may_come_from_elsewhere():
    def annotated(
        a: Float[Tensor, "*n"], b: Float[Tensor, "*n"], k: float = 2.0
    ) -> Float[Tensor, "*n"]: ...

    added = opsmith.adopt(make_function(), "ort_adopted::annotated", annotations=annotated)
    with pytest.raises(opsmith.ArgumentError, match="dimensions from 0"):
        added(torch.ones(3), torch.ones(4))


def test_a_function_of_the_newer_kind_saves_by_itself():
    def forward(a, b, k=2.0):
        return k * a + b

    def setup_context(ctx, inputs, output):
        a, _, ctx.k = inputs
        ctx.save_for_backward(a)

    function = make_function(forward=forward, setup_context=setup_context)
    opsmith.adopt(function, "ort_adopted::newer")
    a = torch.randn(3, dtype=torch.float64, requires_grad=True)
    (grad,) = torch.autograd.grad(function.apply(a, a.detach(), 5.0).sum(), a)
    assert grad.tolist() == [5, 5, 5]


def test_a_forward_that_returns_its_argument_returns_a_copy():
    function = make_function(forward=lambda ctx, a: a, backward=lambda ctx, grad: grad)
    same = opsmith.adopt(function, "ort_adopted::same")
    x = torch.ones(3)
    assert torch.equal(same(x), x) and same(x).data_ptr() != x.data_ptr()


@pytest.mark.parametrize("exporter", EXPORTERS)
def test_a_number_that_was_taken_for_a_tensor_is_said(export, exporter):
    class Scaled(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, factor):
            ctx.factor = factor
            return x * factor

        @staticmethod
        def backward(ctx, grad):
            return grad * ctx.factor, None

    def model(x: Tensor) -> Tensor:
        return Scaled.apply(x, 2.0)

    forward = Scaled.forward
    opsmith.adopt(Scaled, "ort_test::scaled_by_guess")
    with pytest.raises(opsmith.ArgumentError, match="forward's parameter: factor: float"):
        model(torch.ones(3))
    with pytest.raises(ExportError, match="argument 'factor' is 2\\.0, expected a tensor"):
        export(Call(model), (torch.ones(3),), exporter=exporter)

    forward.__annotations__["factor"] = float
    opsmith.adopt(Scaled, f"ort_test::scaled_by_{exporter}")
    assert export(Call(model), (torch.randn(3),), exporter=exporter)(torch.ones(3)).sum() == 6


def test_what_cannot_be_adopted_is_refused():
    def declared(x: Float[Tensor, "*n"]) -> Float[Tensor, "*n"]:
        return x

    with pytest.raises(DeclarationError, match="has no such operator"):
        opsmith.adopt("torchvision::nothing", declared)
    with pytest.raises(DeclarationError, match=r"no such overload; there are .*aten::add\.Tensor"):
        opsmith.adopt("aten::add.Nothing", declared)
    with pytest.raises(
        DeclarationError, match=r"the declaration differs from the operator\.\n  declared: "
    ):
        opsmith.adopt("aten::asinh", declared)
    with pytest.raises(DeclarationError, match="give the new operator a name"):
        opsmith.adopt(make_function())
    with pytest.raises(DeclarationError, match="takes an operator's name or a"):
        opsmith.adopt(3)

    def writes(ctx, a, b):
        ctx.mark_dirty(a)
        return a.add_(b)

    function = make_function(forward=writes)
    written = opsmith.adopt(function, "ort_adopted::written")
    with pytest.raises(DeclarationError, match="its forward writes into its arguments"):
        written(torch.ones(3), torch.ones(3))


def test_an_adopted_operator_takes_no_kernel(asinh):
    with pytest.raises(
        DeclarationError, match="another library defines this operator, so it cannot get a kernel"
    ):
        asinh.register_kernel("cpu", source="asinh.cpp")
    assert asinh.build() == []
    assert isinstance(asinh, opsmith.Operator)
    assert torch.equal(asinh(torch.ones(2)), torch.ones(2).asinh())


@pytest.mark.parametrize(
    "name", [name for name in dir(CustomOpDef) if name.startswith(("register_", "set_"))]
)
def test_an_adopted_operator_takes_nothing_that_changes_what_it_does(asinh, name):
    with pytest.raises(
        DeclarationError, match=r"aten::asinh: (another library defines|register_effe)"
    ):
        getattr(asinh, name)("cpu")
