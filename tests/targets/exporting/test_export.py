"""`opsmith.export` and `opsmith.load`, whatever the target: a stand-in runtime that is PyTorch."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.export import Dim

import opsmith
from opsmith import CheckError, ExportError, MissingDependencyError, checks
from opsmith.checks import all_checks
from opsmith.checks.catalogue import targets as catalogue
from opsmith.checks.protocol import selected
from opsmith.targets import (
    Artifact,
    LoadedModel,
    Model,
    ModelProof,
    ModelTarget,
    Option,
    Outcome,
    Runner,
    prepare,
)
from opsmith.targets.exporting import registry as registry_module
from opsmith.targets.exporting.verification import relative_difference


class StandIn(ModelTarget):
    """Saves the program, and runs it in PyTorch."""

    name = "stand_in"
    title = "Stand-in"
    options = (Option("error", "added to every result", default=0.0, kind=float),)
    missing: str | None = None

    def available(self) -> str | None:
        return self.missing

    def export_model(self, model: Model, folder: Path, options: Mapping[str, Any]) -> Outcome:
        torch.export.save(model.program, folder / "model.pt2")
        return Outcome(details={"error": options["error"]}, versions={"stand_in": "1"})

    def load_model(self, artifact: Artifact) -> Runner:
        return StandInRunner(artifact)


class StandInRunner(Runner):
    def __init__(self, artifact: Artifact) -> None:
        program = torch.export.load(artifact.path("model.pt2"))
        self.model = prepare(program)
        self.module = program.module()
        self.error = artifact.manifest.details["error"]

    def run(self, inputs: Sequence[Tensor]) -> list[Tensor]:
        args, kwargs = self.model.unflatten(inputs)
        leaves = torch.utils._pytree.tree_leaves(self.module(*args, **kwargs))
        return [leaf + self.error for leaf in leaves if isinstance(leaf, Tensor)]


@pytest.fixture
def target(monkeypatch) -> StandIn:
    found = StandIn()
    monkeypatch.setattr("opsmith.targets.exporting.export.get_target", lambda name: found)
    monkeypatch.setattr("opsmith.targets.exporting.loaded_artifact.get_target", lambda name: found)
    return found


class Nested(nn.Module):
    """Takes and returns nested things, a number that the export fixes, and nothing."""

    def forward(self, pair: tuple[Tensor, Tensor], k: int, *, more: dict[str, Tensor]) -> Any:
        a, b = pair
        return {"sum": a + b * k, "rest": [more["x"][1:], None]}


def arguments(n: int = 3) -> tuple[Any, Any]:
    return ((torch.randn(n, 2), torch.randn(n, 2)), 5), {"more": {"x": torch.randn(2 * n)}}


@pytest.fixture
def nested(target, tmp_path) -> LoadedModel:
    args, kwargs = arguments()
    n = Dim("rows", min=2, max=50)
    shapes = {"k": None, "more": {"x": {0: 2 * n}}, "pair": ({0: n}, {0: n})}
    options = {"target": "stand_in", "out": tmp_path / "dist", "dynamic_shapes": shapes}
    opsmith.export(Nested(), args, kwargs, say=None, **options)
    return opsmith.load(tmp_path / "dist")


def test_a_loaded_model_is_called_as_the_model_was(nested):
    args, kwargs = arguments(7)
    expected, found = Nested()(*args, **kwargs), nested(*args, **kwargs)
    assert sorted(found) == ["rest", "sum"] and found["rest"][1] is None
    assert torch.equal(found["sum"], expected["sum"])
    assert torch.equal(found["rest"][0], expected["rest"][0])


def test_the_manifest_says_what_goes_in_and_out(nested):
    manifest = nested.artifact.manifest
    assert [str(spec) for spec in manifest.inputs] == [
        "pair_0: float32 (rows, 2)",
        "pair_1: float32 (rows, 2)",
        "more_x: float32 (2*rows,)",
    ]
    assert [spec.shape for spec in manifest.outputs] == [("rows", 2), ("2*rows - 1",)]
    assert manifest.dims == {"rows": (2, 50)}
    assert {"opsmith", "torch", "python", "stand_in"} <= set(manifest.versions)
    assert manifest.agreement.samples > 3 and manifest.agreement.largest == 0


def test_a_number_that_the_export_fixed_is_compared(nested):
    (pair, _), kwargs = arguments()
    with pytest.raises(opsmith.ArgumentError, match="an argument is 6, but the model was exported"):
        nested(pair, 6, **kwargs)


def test_a_size_that_follows_from_another_is_compared(nested):
    args, _ = arguments(3)
    with pytest.raises(opsmith.ArgumentError, match=r"\(2\*rows\) is 7, expected 6"):
        nested(*args, more={"x": torch.ones(7)})


def test_an_exported_program_brings_its_example(target, tmp_path):
    program = torch.export.export(Nested(), *arguments())
    opsmith.export(program, target="stand_in", out=tmp_path / "dist", say=None)
    args, kwargs = arguments()
    found = opsmith.load(tmp_path / "dist")(*args, **kwargs)
    torch.testing.assert_close(found, Nested()(*args, **kwargs), rtol=0, atol=0)


def test_what_an_export_says(target, tmp_path):
    said: list[str] = []
    model = nn.Sequential(nn.Linear(2, 2), nn.Dropout())
    opsmith.export(
        model, (torch.ones(3, 2),), target="stand_in", out=tmp_path / "dist", say=said.append
    )
    assert said == [
        "Sequential is in training mode; it is exported in evaluation mode",
        "largest difference between Stand-in and PyTorch over 2 samples: 0 of the largest value",
        f"Stand-in artifact: {tmp_path / 'dist'}",
    ]
    assert model.training and model[1].training


def test_a_runtime_that_disagrees_leaves_no_artifact(target, tmp_path):
    model, args, out = nn.Identity(), (torch.ones(3),), tmp_path / "dist"
    with pytest.raises(CheckError, match="Stand-in disagrees with PyTorch in the output 'output'"):
        opsmith.export(model, args, target="stand_in", out=out, say=None, error=0.5)
    assert os.listdir(tmp_path) == []
    opsmith.export(model, args, target="stand_in", out=out, say=None, error=0.5, verify=False)
    assert opsmith.load(out).artifact.manifest.agreement is None


def test_a_model_that_draws_is_not_compared(target, tmp_path):
    model, args, out = Drawing(), (torch.ones(3),), tmp_path / "dist"
    said = r"same\. The model draws random numbers \(aten\.rand_like\.default\): let it take them"
    with pytest.raises(CheckError, match=said):
        opsmith.export(model, args, target="stand_in", out=out, say=None)
    assert os.listdir(tmp_path) == []


class Drawing(nn.Module):
    def forward(self, x):
        return x + torch.rand_like(x)


def test_samples_of_the_callers_own_are_compared(target, tmp_path):
    samples = [(torch.ones(3),), (torch.zeros(3),)]
    artifact = opsmith.export(
        nn.Identity(),
        (torch.ones(3),),
        target="stand_in",
        out=tmp_path / "dist",
        say=None,
        verify=samples,
    )
    assert artifact.manifest.agreement.samples == 3


def test_a_target_that_is_not_available_says_how_to_get_it(target, tmp_path):
    target.missing = "it is not installed. Get it: pip install stand-in"
    with pytest.raises(
        MissingDependencyError, match=r"\(Stand-in\) is not available: .*pip install stand"
    ):
        opsmith.export(nn.Identity(), (torch.ones(3),), target="stand_in", out=tmp_path / "dist")


def test_what_an_export_needs_is_asked_for(target, tmp_path):
    with pytest.raises(ExportError, match="exporting a module needs example arguments"):
        opsmith.export(nn.Identity(), target="stand_in", out=tmp_path / "dist")
    with pytest.raises(ExportError, match="The example has size 1 there; give one of size 2"):
        opsmith.export(
            nn.Linear(2, 2),
            (torch.ones(1, 2),),
            target="stand_in",
            out=tmp_path / "dist",
            dynamic_shapes=({0: Dim("N")},),
        )


def test_a_list_may_hold_a_tensor_without_dimensions(target, tmp_path):
    class Doubled(nn.Module):
        def forward(self, *groups: list[Tensor]) -> list[Tensor]:
            return [2 * one for group in groups for one in group]

    shapes = (([{0: Dim.DYNAMIC}], [None]),)
    options = {"target": "stand_in", "out": tmp_path / "dist", "dynamic_shapes": shapes}
    opsmith.export(Doubled(), ([torch.ones(3)], [torch.tensor(1.0)]), say=None, **options)
    sums = [one.sum() for one in opsmith.load(tmp_path / "dist")([torch.ones(5)], [torch.ones(())])]
    assert sums == [10, 2]


def test_every_folder_beside_the_protocol_is_a_target():
    names = registry_module.target_names()
    assert {"aotinductor", "onnx", "onnxruntime"} <= set(names)
    for found in registry_module.all_targets():
        assert found.name in names and found.title
        missing = found.available()
        assert missing is None or "install" in missing or "only" in missing


@pytest.mark.parametrize(
    ("expected", "found", "difference"),
    [
        ([1.0, 2.0], [1.0, 2.5], 0.25),
        ([1.0, float("inf")], [1.5, float("inf")], 0.5),
        ([1.0, float("nan")], [1.0, float("nan")], 0.0),
        ([1.0, float("nan")], [1.0, 0.0], float("inf")),
        ([0.0, 0.0], [0.0, 1e-30], float("inf")),
        ([], [], 0.0),
    ],
)
def test_the_difference_is_relative_to_the_largest_value(expected, found, difference):
    assert relative_difference(torch.tensor(expected), torch.tensor(found)) == difference


def test_a_target_brings_its_checks(target, monkeypatch):
    @opsmith.op("stand_in::double")
    def double(x: Float[Tensor, "N"]) -> Float[Tensor, "N"]:
        return 2 * x

    def proof(name: str, **settings: Any) -> ModelProof:
        summary = "the stand-in gives right results"
        return ModelProof(name=name, summary=summary, what="the stand-in", **settings)

    proofs = [
        proof("right"),
        proof("wrong", options=lambda operator: {"error": 1.0}),
        proof("elsewhere", obstacle=lambda operator, kernel: f"no {kernel.device} here"),
        proof("asked_for", flag="slowly"),
    ]
    known = {check.name: check for check in all_checks()}
    monkeypatch.setattr("opsmith.checks.protocol._CHECKS", known)
    for order, item in enumerate(proofs, 900):
        catalogue._register(target, item, order)
    assert [one.name for one in selected(None)][-3:] == ["right", "wrong", "elsewhere"]

    names = ["right", "wrong", "elsewhere"]
    report = checks.run(double, select=names, isolate=False)
    rows = {row.check: row for row in report.rows if row.check in names}
    assert {name: row.status for name, row in rows.items()} == {
        "right": "passed",
        "wrong": "failed",
        "elsewhere": "not applicable",
    }
    assert "the stand-in, run with x (" in rows["wrong"].message
    assert rows["elsewhere"].message == "no reference here"

    target.missing = "the stand-in is not installed"
    *_, row = checks.run(double, select=["right"], isolate=False).rows
    assert (row.status, row.message) == ("not applicable", "the stand-in is not installed")


def test_sizes_at_both_ends_of_what_the_export_allows(nested):
    for size in (2, 50):
        args, kwargs = arguments(size)
        assert nested(*args, **kwargs)["sum"].shape == (size, 2)
    for size in (1, 51):
        args, kwargs = arguments(size)
        with pytest.raises(opsmith.ArgumentError) as caught:
            nested(*args, **kwargs)
        assert f"is {size}, the export allows 2 <= " in str(caught.value)
        assert str(caught.value).splitlines()[0].endswith("<= 50.")


@pytest.mark.parametrize("umask", [0o022, 0o077])
def test_an_artifact_is_as_readable_as_any_folder(nested, tmp_path, umask):
    args, kwargs = arguments()
    before = os.umask(umask)
    try:
        out = tmp_path / "readable"
        opsmith.export(Nested(), args, kwargs, target="stand_in", out=out, say=None)
        (tmp_path / "plain").mkdir()
    finally:
        os.umask(before)
    assert out.stat().st_mode == (tmp_path / "plain").stat().st_mode
