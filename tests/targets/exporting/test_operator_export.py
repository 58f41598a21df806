"""Operators exported as such: a stand-in runtime whose arrays are NumPy's."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from jaxtyping import Float
from torch import Tensor, nn

import opsmith
from opsmith import ArtifactError, CheckError, ExportError, MissingDependencyError, checks
from opsmith.checks import all_checks
from opsmith.checks.catalogue import targets as catalogue
from opsmith.errors import LoadError
from opsmith.operators import Operator
from opsmith.operators.core import registry
from opsmith.targets import (
    Artifact,
    OperatorProof,
    OperatorRunner,
    OperatorTarget,
    OperatorUse,
    Option,
    Outcome,
    Target,
)
from opsmith.targets.exporting import registry as target_registry


class NumpyTarget(OperatorTarget):
    """Calls the references on NumPy's arrays."""

    name = "numpy"
    title = "NumPy"
    options = (Option("error", "added to every result", default=0.0, kind=float),)
    missing: str | None = None

    def available(self) -> str | None:
        return self.missing

    def export_operators(
        self, operators: Sequence[Operator], folder: Path, options: Mapping[str, Any]
    ) -> Outcome:
        names = [operator.name for operator in operators]
        (folder / "operators.json").write_text(json.dumps(names))
        uses = [OperatorUse(name, "reference") for name in names]
        return Outcome(uses, {"numpy": np.__version__}, {"error": options["error"]})

    def load_operators(self, artifact: Artifact) -> OperatorRunner:
        return NumpyRunner(artifact)


class NumpyRunner(OperatorRunner):
    def __init__(self, artifact: Artifact) -> None:
        names = json.loads(artifact.path("operators.json").read_text())
        error = artifact.manifest.details["error"]

        def function(name: str) -> Any:
            def call(*args: Any) -> Any:
                tensors = [torch.from_numpy(a) if isinstance(a, np.ndarray) else a for a in args]
                found = registry.get(name).reference(*tensors)
                many = found if isinstance(found, tuple) else (found,)
                arrays = tuple(value.numpy() + error for value in many)
                return arrays if isinstance(found, tuple) else arrays[0]

            return call

        self.functions = {name: function(name) for name in names}

    def run(self, name: str, arguments: Mapping[str, Any]) -> list[Tensor]:
        args = [a.numpy() if isinstance(a, Tensor) else a for a in arguments.values()]
        found = self.functions[name](*args)
        many = found if isinstance(found, tuple) else [found]
        return [torch.as_tensor(value) for value in many]


@pytest.fixture
def target(monkeypatch) -> NumpyTarget:
    found = NumpyTarget()
    real = target_registry.get_target

    def get_target(name: str) -> Target:
        return found if name == "numpy" else real(name)

    def all_targets() -> tuple[Target, ...]:
        return (*target_registry.all_targets(), found)

    monkeypatch.setattr("opsmith.targets.get_target", get_target)
    monkeypatch.setattr("opsmith.targets.exporting.export.get_target", get_target)
    monkeypatch.setattr("opsmith.targets.exporting.export.all_targets", all_targets)
    monkeypatch.setattr("opsmith.targets.exporting.loaded_artifact.get_target", get_target)
    return found


@opsmith.op("export_a::twice")
def twice(x: Float[Tensor, "*n"]) -> Float[Tensor, "*n"]:
    return 2 * x


@opsmith.op("export_a::split")
def split(x: Float[Tensor, "N"], k: float) -> tuple[Float[Tensor, "N"], Float[Tensor, "N"]]:
    return x * k, x - x * k


@opsmith.op("export_b::twice")
def other_twice(x: Float[Tensor, "*n"]) -> Float[Tensor, "*n"]:
    return x + x


@split.register_cases
def cases(dtype: torch.dtype, seed: int) -> Any:
    generator = torch.Generator().manual_seed(seed)
    for n in (1, 5):
        yield {"x": torch.randn(n, generator=generator).to(dtype), "k": 0.25}


def export(what: Any, out: Path, **settings: Any) -> Any:
    opsmith.export(what, target="numpy", out=out, **{"say": None, **settings})
    return opsmith.load(out)


def test_a_loaded_operator_is_the_runtimes_own_function(target, tmp_path):
    loaded = export([twice, split], tmp_path / "dist")
    assert list(loaded) == ["export_a::twice", "export_a::split"]
    x = np.arange(3.0)
    assert (loaded["export_a::twice"](x) == 2 * x).all()
    first, second = loaded.ops.split(x, 0.25)
    assert isinstance(first, np.ndarray) and (first + second == x).all()
    assert {"twice", "split"} == set(dir(loaded.ops))
    assert repr(loaded) == (
        f"<numpy artifact {tmp_path / 'dist'} (operators export_a::twice, export_a::split)>"
    )


def test_an_operator_that_is_not_there_is_said_with_those_that_are(target, tmp_path):
    loaded = export([twice, other_twice], tmp_path / "dist")
    with pytest.raises(KeyError, match="has no operator 'export_a::thrice'; it has export_a::tw"):
        loaded["export_a::thrice"]
    with pytest.raises(AttributeError, match="has no operator 'thrice'; it has export_a::twice, e"):
        _ = loaded.ops.thrice
    with pytest.raises(AttributeError, match="export_a::twice and export_b::twice; use the whole"):
        _ = loaded.ops.twice


def test_the_artifact_is_as_that_of_a_model(target, tmp_path):
    artifact = opsmith.export(split, target="numpy", out=tmp_path / "dist", say=None)
    manifest = artifact.manifest
    assert (manifest.kind, manifest.inputs, manifest.outputs) == ("operators", (), ())
    assert [use.name for use in manifest.operators] == ["export_a::split"]
    assert {"opsmith", "torch", "numpy"} <= set(manifest.versions)
    assert manifest.agreement.samples == 2 and manifest.agreement.largest == 0
    (tmp_path / "dist" / "operators.json").write_text("[]")
    with pytest.raises(ArtifactError, match=r"operators\.json is not the file that was exported"):
        opsmith.load(tmp_path / "dist")


def test_an_artifact_of_another_kind_of_target_says_so(target, tmp_path):
    export(split, tmp_path / "dist")
    manifest = tmp_path / "dist" / "manifest.json"
    manifest.write_text(manifest.read_text().replace('"operators",', '"model",'))
    with pytest.raises(ArtifactError, match=r"holds a model, which the target 'numpy' \(NumPy\)"):
        opsmith.load(tmp_path / "dist")


def test_what_an_export_says(target, tmp_path):
    said: list[str] = []
    export([twice, split], tmp_path / "dist", say=said.append)
    assert said == [
        "export_a::twice: reference",
        "export_a::split: reference",
        "not compared with PyTorch: export_a::twice. There are no registered cases; opsmith check "
        "samples some",
        "largest difference between NumPy and PyTorch over 2 samples: 0 of the largest value",
        f"NumPy artifact: {tmp_path / 'dist'}",
    ]


def test_a_runtime_that_disagrees_leaves_no_artifact(target, tmp_path):
    with pytest.raises(CheckError, match="NumPy disagrees with PyTorch in the output 'export_a::s"):
        export(split, tmp_path / "dist", error=1.0)
    assert list(tmp_path.iterdir()) == []
    loaded = export(split, tmp_path / "dist", error=1.0, verify=False)
    assert loaded.artifact.manifest.agreement is None


def test_the_manifest_says_how_far_the_runtime_is_from_pytorch_and_where(target, tmp_path):
    found = export([twice, split], tmp_path / "dist", error=1e-5).artifact.manifest.agreement
    assert 1e-6 < found.largest < 1e-3
    assert found.output.startswith("export_a::split: ")


FILE = """
import opsmith
from jaxtyping import Float
from torch import Tensor

@opsmith.op("{name}::negate")
def negate(x: Float[Tensor, "*n"]) -> Float[Tensor, "*n"]:
    return -x

both = [negate]
"""
ANOTHER = """
@opsmith.op("{name}::halve")
def halve(x: Float[Tensor, "*n"]) -> Float[Tensor, "*n"]:
    return x / 2
"""


def test_a_file_a_module_and_a_list_stand_for_their_operators(target, tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", sys.path.copy())
    file = tmp_path / "export_c.py"
    file.write_text(FILE.format(name="export_c"))
    assert list(export(file, tmp_path / "one")) == ["export_c::negate"]
    assert list(export(str(file), tmp_path / "two")) == ["export_c::negate"]
    module = sys.modules["export_c"]
    assert list(export(module, tmp_path / "three")) == ["export_c::negate"]
    loaded = export([module.negate] * 2, tmp_path / "four")
    assert [use.name for use in loaded.artifact.manifest.operators] == ["export_c::negate"]


def test_one_operator_of_a_file_is_exported_by_its_name(target, tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", sys.path.copy())
    file = tmp_path / "export_e.py"
    file.write_text((FILE + ANOTHER).format(name="export_e"))
    assert list(export(str(file), tmp_path / "both")) == ["export_e::negate", "export_e::halve"]
    assert list(export(f"{file}::halve", tmp_path / "one")) == ["export_e::halve"]
    assert list(export(f"{file}::export_e::halve", tmp_path / "named")) == ["export_e::halve"]


@pytest.mark.parametrize(
    ("what", "error", "words"),
    [
        (3, ExportError, r"3 \(int\) cannot be exported: expected a torch.nn.Module, an Expo"),
        ([], ExportError, r"\[\] \(list\) cannot be exported"),
        ([twice, 3], ExportError, r"a list of operators holds 3 \(int\)"),
        (ModuleType("empty"), ExportError, "the module 'empty' declares no operator"),
        ("absent.py", LoadError, "no such file: absent.py"),
        (nn.ReLU(), ExportError, r"\(NumPy\) takes operators, and ReLU is a model. Export the ope"),
    ],
)
def test_what_cannot_be_exported_as_operators(target, tmp_path, what, error, words):
    with pytest.raises(error, match=words):
        export(what, tmp_path / "dist")


def test_a_target_of_models_says_which_take_operators(target, tmp_path):
    words = (
        r"target 'aotinductor' \(AOTInductor\) takes models, and export_a::twice is an operator\. "
        r"Export a model that calls it, with an example of its arguments; targets that take "
        r"operators: .*numpy\."
    )
    with pytest.raises(ExportError, match=words):
        opsmith.export(twice, target="aotinductor", out=tmp_path / "dist")


def test_what_belongs_to_models_is_refused(target, tmp_path):
    with pytest.raises(ExportError, match="args, kwargs and dynamic_shapes are for models"):
        export(twice, tmp_path / "dist", args=(torch.ones(3),))
    with pytest.raises(ExportError, match="compared on the cases that register_cases gives"):
        export(twice, tmp_path / "dist", verify=[(torch.ones(3),)])


def test_a_target_that_is_not_available_says_how_to_get_it(target, tmp_path):
    target.missing = "it is not installed. Get it: pip install numpy"
    with pytest.raises(
        MissingDependencyError, match=r"\(NumPy\) is not available: .*pip install numpy"
    ):
        export(twice, tmp_path / "dist")


def test_the_command_line_exports_a_file(target, tmp_path, cli, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", sys.path.copy())
    Path("export_d.py").write_text(FILE.format(name="export_d"))
    done = cli("export", "export_d.py", "--target", "numpy", "--out", "one")
    assert done.code == 0, done.stderr
    assert done.stdout.splitlines()[0] == "export_d::negate: reference"
    for source in ("export_d.py:negate", "export_d:both"):
        done = cli("export", source, "--target", "numpy", "--out", "one", "--overwrite")
        assert done.code == 0, done.stderr
    assert list(opsmith.load("one")) == ["export_d::negate"]

    done = cli("run", "one")
    assert done.code == 1
    assert "one holds operators (export_d::negate), and opsmith run runs models" in done.stderr
    done = cli("export", "export_d.py:negate", "--target", "onnx", "--out", "two")
    assert done.code == 1
    assert "takes models, and export_d::negate is an operator" in done.stderr


def test_a_target_brings_checks_of_operators(target, monkeypatch):
    def proof(name: str, **settings: Any) -> OperatorProof:
        summary = "NumPy gives right results"
        settings = {"lacks": frozenset({"bfloat16"}), **settings}  # which NumPy does not have
        return OperatorProof(name=name, summary=summary, what="NumPy", **settings)

    def negated(loaded: Any, operator: Operator, arguments: Mapping[str, Any]) -> list[Tensor]:
        return [-torch.as_tensor(loaded.ops.twice(arguments["x"].numpy()))]

    def refuse(operator: Operator) -> Mapping[str, Any]:
        return {"eror": 1.0}

    proofs = [
        proof("right"),
        proof("wrong", options=lambda operator: {"error": 1.0}),
        proof("refused", options=refuse),
        proof("elsewhere", obstacle=lambda operator, kernel: f"no {kernel.device} here"),
        proof("backwards", run=negated),
        proof("narrow", lacks=frozenset({"float64", "float16", "bfloat16"})),
    ]
    known = {check.name: check for check in all_checks()}
    monkeypatch.setattr("opsmith.checks.protocol._CHECKS", known)
    for order, item in enumerate(proofs, 900):
        catalogue._register(target, item, order)
    names = [item.name for item in proofs]
    report = checks.run(twice, select=names, isolate=False)
    rows = {row.check: row for row in report.rows if row.check in names}
    assert {name: row.status for name, row in rows.items()} == {
        "right": "passed",
        "wrong": "failed",
        "refused": "failed",
        "elsewhere": "not applicable",
        "backwards": "failed",
        "narrow": "passed",
    }
    assert rows["wrong"].message.startswith("in NumPy: ")
    assert "target 'numpy' has no option 'eror'; there are error" in rows["refused"].message
    assert rows["right"].cases > rows["narrow"].cases > 1
