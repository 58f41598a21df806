"""The tutorial of mmdeploy on operators that ONNX does not have, letter by letter."""

from __future__ import annotations

import sys
import types
from collections.abc import Iterator
from typing import Any

import onnx
import pytest
import torch
from calling import Call
from jaxtyping import Float
from torch import Tensor, nn

import opsmith
from opsmith.compat.torch_onnx import registered_symbolics

pytestmark = pytest.mark.slow

EXPORTERS = ("dynamo", "torchscript")
INT = "int stride_h, int stride_w, int pad_h, int pad_w, int dil_h, int dil_w, int n, int o"

MODEL = """
import torch
import torchvision

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = torch.nn.Conv2d(3, 18, 3)
        self.conv2 = torchvision.ops.DeformConv2d(3, 3, 3)

    def forward(self, x):
        return self.conv2(x, self.conv1(x))
"""

SYMBOLIC = """
from torch.onnx import register_custom_op_symbolic
from torch.onnx.symbolic_helper import parse_args

@parse_args("v", "v", "v", "v", "v", "i", "i", "i", "i", "i", "i", "i", "i", "none")
def symbolic(g,
        input,
        weight,
        offset,
        mask,
        bias,
        stride_h, stride_w,
        pad_h, pad_w,
        dil_h, dil_w,
        n_weight_grps,
        n_offset_grps,
        use_mask):
    return g.op("custom::deform_conv2d", input, offset)
"""

REGISTER = """
register_custom_op_symbolic("torchvision::deform_conv2d", symbolic, 9)
"""

INPUT = """
model = Model()
input = torch.rand(1, 3, 10, 10)
"""

MY_ADD = """
import torch
import my_lib
class MyAddFunction(torch.autograd.Function):

    @staticmethod
    def forward(ctx, a, b):
        return my_lib.my_add(a, b)

    @staticmethod
    def symbolic(g, a, b):
        two = g.op("Constant", value_t=torch.tensor([2]))
        a = g.op('Mul', a, two)
        return g.op('Add', a, b)
"""

MY_ADD_MODEL = """
my_add = MyAddFunction.apply

class MyAdd(torch.nn.Module):
    def __init__(self):
        super().__init__()

    def forward(self, a, b):
        return my_add(a, b)

model = MyAdd()
input = torch.rand(1, 3, 10, 10)
"""


class DeformConv2d(nn.Module):
    """The layer of torchvision, which is not installed where this is tested."""

    def __init__(self, channels: int, out: int, size: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(out, channels, size, size))
        self.bias = nn.Parameter(torch.zeros(out))

    def forward(self, x: Tensor, offset: Tensor) -> Tensor:
        rest = (1, 1, 0, 0, 1, 1, 1, 1, False)
        mask = torch.zeros(x.shape[0], 1)
        operator = torch.ops.torchvision.deform_conv2d
        return operator(x, self.weight, offset, mask, self.bias, *rest)


def plain(x: Tensor, weight: Tensor, offset: Tensor, mask: Tensor, bias: Tensor, *rest: Any) -> Any:
    """A convolution that is deformed by nothing; what a call computes is not of interest here."""
    return nn.functional.conv2d(x, weight, bias) + 0 * offset.sum()


@pytest.fixture(scope="module")
def torchvision() -> Iterator[opsmith.Operator]:
    """A stand-in with the one operator, adopted."""
    module: Any = types.ModuleType("torchvision")
    module.ops = types.SimpleNamespace(DeformConv2d=DeformConv2d)
    library = torch.library.Library("torchvision", "FRAGMENT")
    library.define(
        "deform_conv2d(Tensor input, Tensor weight, Tensor offset, Tensor mask, Tensor bias, "
        f"{INT}, bool use_mask) -> Tensor"
    )
    library.impl("deform_conv2d", plain, "CPU")
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "torchvision", module)

        @opsmith.adopt("torchvision::deform_conv2d")
        def deform_conv2d(
            input: Float[Tensor, "N C H W"],
            weight: Float[Tensor, "M C kH kW"],
            offset: Float[Tensor, "N O OH OW"],
            mask: Float[Tensor, "N ..."],
            bias: Float[Tensor, "M"],
            stride_h: int,
            stride_w: int,
            pad_h: int,
            pad_w: int,
            dil_h: int,
            dil_w: int,
            n: int,
            o: int,
            use_mask: bool,
        ) -> Float[Tensor, "N M OH OW"]:
            return plain(input, weight, offset, mask, bias)

        yield deform_conv2d


@pytest.fixture
def deform_conv2d(torchvision: opsmith.Operator) -> Iterator[opsmith.Operator]:
    """The adopted operator, with nothing said to torch.onnx or to opsmith before and after."""
    yield torchvision
    torchvision.onnx_translations.clear()
    for opset in registered_symbolics("torchvision::deform_conv2d"):
        torch.onnx.unregister_custom_op_symbolic("torchvision::deform_conv2d", opset)


def run(*parts: str) -> dict[str, Any]:
    found: dict[str, Any] = {"__name__": "tutorial"}
    exec(compile("".join(parts), "tutorial.py", "exec"), found)
    return found


def exported(tmp_path: Any, exporter: str) -> Any:
    found = run(MODEL, INPUT)
    out = tmp_path / "dcn"
    args = (found["input"],)
    opsmith.export(found["model"], args, target="onnx", out=out, exporter=exporter, say=None)
    return onnx.load(out / "model.onnx")


def is_the_node(model: Any) -> bool:
    """Whether the graph is a convolution and the tutorial's node, of the input and the offset."""
    first, last = model.graph.node
    (given,) = model.graph.input
    return (
        (first.op_type, last.op_type, last.domain) == ("Conv", "deform_conv2d", "custom")
        and list(last.input) == [given.name, first.output[0]]
        and not last.attribute
    )


@pytest.mark.parametrize("exporter", EXPORTERS)
def test_what_is_registered_with_torch_onnx_counts_once_the_operator_is_adopted(
    tmp_path, deform_conv2d, exporter
):
    run(MODEL, SYMBOLIC, REGISTER)
    assert is_the_node(exported(tmp_path, exporter))


def test_what_is_registered_with_torch_onnx_stays_registered_after_an_export(
    tmp_path, deform_conv2d
):
    # For the opset that opsmith itself exports, and registers its own functions for.
    found = run(MODEL, SYMBOLIC, REGISTER.replace("9", "20"), INPUT)
    exported(tmp_path, "torchscript")
    path = tmp_path / "dcn.onnx"
    torch.onnx.export(found["model"], found["input"], path, dynamo=False, opset_version=20)
    assert is_the_node(onnx.load(path))


def test_what_is_registered_with_torch_onnx_is_taken_by_its_other_exporter(tmp_path, deform_conv2d):
    found = run(MODEL, SYMBOLIC, REGISTER, INPUT)
    program = torch.onnx.export(
        found["model"],
        (found["input"],),
        dynamo=True,
        verbose=False,
        # As docs/how-to/mmdeploy.md writes it: adopted operators are among all.
        custom_translation_table=opsmith.onnx_translations(),
    )
    assert is_the_node(program.model_proto)


@pytest.mark.parametrize("exporter", EXPORTERS)
def test_register_onnx_takes_a_symbolic_as_it_is(tmp_path, deform_conv2d, exporter):
    deform_conv2d.register_onnx(run(MODEL, SYMBOLIC)["symbolic"])
    assert is_the_node(exported(tmp_path, exporter))


@pytest.mark.parametrize("exporter", EXPORTERS)
def test_a_function_makes_a_node_of_another_domain_by_saying_which(
    tmp_path, deform_conv2d, exporter
):
    @deform_conv2d.register_onnx
    def deformed(op: Any, input: Any, weight: Any, offset: Any, *rest: Any) -> Any:
        return op.deform_conv2d(input, offset, domain="custom")

    assert is_the_node(exported(tmp_path, exporter))


@pytest.mark.parametrize("exporter", EXPORTERS)
def test_a_node_of_another_domain_takes_the_inputs_that_are_named(
    tmp_path, deform_conv2d, exporter
):
    deform_conv2d.register_onnx("custom::deform_conv2d", inputs=("input", "offset"))
    assert is_the_node(exported(tmp_path, exporter))


def test_a_node_that_onnx_does_not_have_is_refused_with_the_way_to_say_whose_it_is(
    tmp_path, deform_conv2d
):
    @deform_conv2d.register_onnx
    def deformed(op: Any, input: Any, weight: Any, offset: Any, *rest: Any) -> Any:
        return op.deform_conv2d(input, offset)

    found = run(MODEL, INPUT)
    with pytest.raises(opsmith.ExportError) as caught:
        opsmith.export(
            found["model"],
            (found["input"],),
            target="onnx",
            out=tmp_path / "out",
            form="standard",
            say=None,
        )
    assert str(caught.value).endswith(
        "its ONNX form uses deform_conv2d, which opset 20 does not have. If the node is another "
        'domain\'s, say which: op.deform_conv2d(…, domain="custom")'
    )


def test_the_report_says_that_torch_onnx_was_told(tmp_path, deform_conv2d):
    found = run(MODEL, SYMBOLIC, REGISTER, INPUT)
    said: list[str] = []
    out = tmp_path / "out"
    opsmith.export(found["model"], (found["input"],), target="onnx", out=out, say=said.append)
    assert said[0] == (
        "torchvision::deform_conv2d: standard, 1 call (torch.onnx.register_custom_op_symbolic)"
    )


@pytest.fixture
def my_lib(monkeypatch: pytest.MonkeyPatch) -> None:
    """The extension that the tutorial compiles."""
    module: Any = types.ModuleType("my_lib")
    module.my_add = lambda a, b: 2 * a + b
    monkeypatch.setitem(sys.modules, "my_lib", module)


def test_torch_onnx_export_uses_the_symbolic_of_an_adopted_function(tmp_path, my_lib):
    found = run(MY_ADD)
    opsmith.adopt(found["MyAddFunction"], "mmdeploy_tutorial::my_add")
    exec(MY_ADD_MODEL, found)
    x, path = found["input"], tmp_path / "my_add.onnx"
    torch.onnx.export(found["model"], (x, x), path, dynamo=False)
    nodes = [node.op_type for node in onnx.load(path).graph.node]
    assert [name for name in nodes if name != "Constant"] == ["Mul", "Add"]
    opsmith.export(
        found["model"],
        (x, x),
        target="onnx",
        out=tmp_path / "out",
        exporter="torchscript",
        say=None,
    )
    # Where opsmith exports, the call is the operator's: its forms, and its validation.
    (use,) = opsmith.load(tmp_path / "out").artifact.manifest.operators
    assert (use.name, use.form) == ("mmdeploy_tutorial::my_add", "standard")


@opsmith.op("mmdeploy_inner::plus")
def _plus(a: Float[Tensor, "*n"], b: Float[Tensor, "*n"]) -> Float[Tensor, "*n"]:
    return a + b


@pytest.mark.parametrize("inner", [torch.add, _plus], ids=["torch", "opsmith"])
def test_a_direct_export_calls_the_symbolic_of_an_adopted_function(inner, tmp_path) -> None:
    class Foreign(torch.autograd.Function):
        @staticmethod
        def forward(ctx, a, b):
            return inner(a, b)

        @staticmethod
        def symbolic(g, a, b):
            return g.op("custom::foreign_add", a, b)

    early = Foreign.apply
    name = f"mmdeploy_inner::{'of_ours' if inner is _plus else 'of_torchs'}"
    opsmith.adopt(Foreign, name)
    x, path = torch.rand(2, 3), tmp_path / "foreign.onnx"
    for call in (early, Foreign.apply):
        torch.onnx.export(Call(call), (x, x), path, dynamo=False)
        nodes = onnx.load(path).graph.node
        assert [(node.domain, node.op_type) for node in nodes] == [("custom", "foreign_add")]
