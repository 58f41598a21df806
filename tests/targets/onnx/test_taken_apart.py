"""An export takes a program apart once, and into what two steps would."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest
import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.export import ExportedProgram
from torch.fx.experimental import proxy_tensor

import opsmith
from opsmith.targets.layouts import layouts_unasked
from opsmith.targets.onnx import taken_apart
from opsmith.targets.onnx.decompositions import DECOMPOSITIONS
from opsmith.targets.onnx.taken_apart import Apart, for_dynamo


@opsmith.op("apart_test::gelu")
def gelu(x: Float[Tensor, "N M"]) -> Float[Tensor, "N M"]:
    # What torch.onnx takes apart itself, what opsmith mends, and what the mended one gives back.
    near = torch.nn.functional.cosine_similarity(x, x + 1, dim=1)
    return torch.addcmul(x, x.log1p(), near[:, None]) + torch.special.expm1(x)


class Model(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return gelu(x).unbind(1)[0]


@pytest.fixture
def traces(monkeypatch: pytest.MonkeyPatch) -> list[None]:
    """One for each time that a program is taken apart."""
    found: list[None] = []
    original = ExportedProgram.run_decompositions

    def run(self: ExportedProgram, *args, **kwargs) -> ExportedProgram:
        found.append(None)
        return original(self, *args, **kwargs)

    monkeypatch.setattr(ExportedProgram, "run_decompositions", run)
    return found


def nodes_of(folder: Path) -> list[str]:
    return [node.op_type for node in onnx.load(folder / "model.onnx").graph.node]


def test_a_program_is_taken_apart_once_and_as_by_two_steps(
    traces: list[None], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    x = torch.rand(3, 4)
    # Each export compares what the model gives with what the reference does.
    opsmith.export(Model(), (x,), target="onnxruntime", out=tmp_path / "once", say=None)
    assert len(traces) == 1
    # As with a release of PyTorch in which opsmith does not find what it takes apart.
    monkeypatch.setattr(taken_apart, "for_dynamo", lambda opset: Apart(DECOMPOSITIONS))
    opsmith.export(Model(), (x,), target="onnxruntime", out=tmp_path / "twice", say=None)
    assert len(traces) == 3
    assert nodes_of(tmp_path / "once") == nodes_of(tmp_path / "twice")


def test_what_is_mended_stands_before_what_the_exporter_would_do(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cosine, log1p = torch.ops.aten.cosine_similarity.default, torch.ops.aten.log1p.default
    assert for_dynamo(20).table[log1p] is DECOMPOSITIONS[log1p]
    answers = iter(["mended", NotImplemented])
    monkeypatch.setitem(DECOMPOSITIONS, cosine, lambda *_: next(answers))
    one = torch.ones(3, 4)
    mended = for_dynamo(20).table[cosine]
    assert mended(one, one) == "mended"
    torch.testing.assert_close(mended(one, one), torch.ones(3))


def test_the_exporter_takes_programs_apart_again_afterwards(traces: list[None]) -> None:
    x = torch.rand(3, 4)
    with for_dynamo(20).block():
        pass
    torch.onnx.export(nn.Softplus().eval(), (x,), dynamo=True, verbose=False)
    assert traces


def test_an_operator_that_keeps_a_form_is_not_taken_apart(tmp_path: Path) -> None:
    with torch.library._scoped_library("apart_kept", "DEF") as library:
        library.define("soft(Tensor x) -> Tensor")
        library.impl("soft", torch.nn.functional.softplus, "CompositeImplicitAutograd")

        @opsmith.adopt("apart_kept::soft")
        def soft(x: Float[Tensor, "*n"]) -> Float[Tensor, "*n"]:
            return torch.nn.functional.softplus(x)

        soft.register_onnx("Softplus")

        class Soft(nn.Module):
            def forward(self, x: Tensor) -> Tensor:
                return torch.ops.apart_kept.soft(x)

        opsmith.export(Soft(), (torch.rand(3),), target="onnxruntime", out=tmp_path / "a", say=None)
        assert nodes_of(tmp_path / "a") == ["Softplus"]


def test_no_traced_tensor_is_asked_for_its_layout_in_a_block() -> None:
    def noted() -> object:
        graph = proxy_tensor.make_fx(lambda x: x + 1)(torch.ones(2, 3))
        return next(node for node in graph.graph.nodes if node.op == "call_function").meta

    before = noted()["tensor_meta"]
    with layouts_unasked():
        inside = noted()["tensor_meta"]
    assert before.memory_format is torch.contiguous_format
    assert inside == before._replace(memory_format=None)
    assert noted()["tensor_meta"] == before
