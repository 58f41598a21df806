"""Exports are compared on every combination of what they fix, where it matters."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import faults_endings as endings
import pytest
import torch
from jaxtyping import Float
from torch import Tensor

import opsmith
from opsmith import checks
from opsmith.checks.cases.subject import subjects_of
from opsmith.checks.cases.wanted import Wanted
from opsmith.checks.exports.constant_coverage import MOST, facts, telling_cases
from opsmith.checks.trial.trial import Trial

SMALL = Wanted(sizes=(2, 3, 4), max_elements=512)


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a busy machine look at as much as a quiet one."""
    monkeypatch.setattr("opsmith.checks.exports.constant_coverage._SECONDS", 60.0)


def row(operator: Any, check: str) -> Any:
    report = checks.run([operator], select=[check], isolate=False, examples=6)
    (found,) = report.rows
    return found


def telling(operator: Any) -> Any:
    (subject,) = subjects_of(operator)
    return telling_cases(Trial(subject, "a test"), "float32", SMALL, None)


@pytest.mark.long
@pytest.mark.parametrize("check", ["onnx-standard", "onnx-standard-torchscript"])
@pytest.mark.usefixtures("brief_shrinking")
def test_a_constant_in_place_of_an_attribute_fails(check):
    @opsmith.op("telling_test::leaky")
    def leaky(x: Float[Tensor, "N"], slope: float = 0.1) -> Float[Tensor, "N"]:
        return torch.where(x < 0, x * slope, x)

    # The sampler's favourite, which one export alone would be made with.
    leaky.register_onnx("LeakyRelu", opset=16, attributes={"alpha": 0.1})
    found = row(leaky, check)
    assert found.status == "failed"
    assert "the exported model, run with x " in found.message

    leaky.onnx_translations.clear()
    leaky.register_onnx("LeakyRelu", opset=16, attributes={"alpha": "slope"})
    found = row(leaky, check)
    assert (found.status, found.message) == ("passed", "")
    assert "combinations of what an export fixes" in found.notes[0]


@pytest.mark.slow
@pytest.mark.usefixtures("brief_shrinking")
def test_a_text_that_a_mapping_takes_for_another_fails():
    @opsmith.op("telling_test::reduced")
    def reduced(x: Float[Tensor, "N C"], mode: str) -> Float[Tensor, "N"]:
        return {"sum": x.sum, "mean": x.mean, "max": x.amax}[mode](1)

    @reduced.register_cases(only=True)
    def _(dtype: torch.dtype, seed: int) -> Iterator[dict[str, Any]]:
        for n, mode in enumerate(("sum", "sum", "mean", "max")):
            yield {"x": torch.randn(2 + n, 4).to(dtype), "mode": mode}

    @reduced.register_onnx(opset=18)
    def _(op: Any, x: Any, mode: str) -> Any:
        make = op.ReduceMax if mode == "max" else op.ReduceSum
        return make(x, [1], keepdims=0)

    found = row(reduced, "onnx-standard")
    assert found.status == "failed"
    assert "run with x (4, 4), mode='mean': the result[" in found.message
    assert "mode='mean'" in found.case


@pytest.mark.long
@pytest.mark.parametrize("check", ["onnx-inline", "onnx-inline-torchscript"])
def test_a_combination_that_cannot_be_inlined_is_named(check):
    @opsmith.op("telling_test::opaque_max")
    def opaque_max(x: Float[Tensor, "N C"], mode: str) -> Float[Tensor, "N"]:
        if mode == "max":
            return torch.from_numpy(x.numpy().max(1))
        return x.sum(1)

    @opaque_max.register_cases(only=True)
    def _(dtype: torch.dtype, seed: int) -> Iterator[dict[str, Any]]:
        for n, mode in enumerate(("sum", "sum", "max")):
            yield {"x": torch.randn(2 + n, 4).to(dtype), "mode": mode}

    found = row(opaque_max, check)
    assert found.status == "passed"
    notes = "; ".join(found.notes)
    assert "not exported for mode='max': telling_test::opaque_max: its reference cannot" in notes
    assert f"{__file__}:" in notes and "return torch.from_numpy(x.numpy().max(1))" in notes


@pytest.mark.long
def test_a_combination_that_the_runtime_does_not_load_is_named() -> None:
    @opsmith.op("telling_test::unloadable")
    def unloadable(x: Float[Tensor, "N"], mode: str) -> Float[Tensor, "N"]:
        return x * (3 if mode == "three" else 2)

    @unloadable.register_cases(only=True)
    def _(dtype: torch.dtype, seed: int) -> Iterator[dict[str, Any]]:
        for n, mode in enumerate(("two", "two", "three")):
            yield {"x": torch.randn(2 + n).to(dtype), "mode": mode}

    @unloadable.register_onnx
    def _(op: Any, x: Any, mode: str) -> Any:
        return op.Add(x, x) if mode == "two" else op.BitwiseAnd(x, x)

    found = row(unloadable, "onnx-standard")
    assert (found.status, found.code) == ("failed", "OPS-TARGET-RAISED")
    assert "the exported model raised ArtifactError: ONNX Runtime" in found.message
    assert "of operator (BitwiseAnd)" in found.message
    assert found.case.startswith("x: float32 (4,)") and "mode='three'" in found.case


@pytest.mark.long
def test_a_combination_that_ends_the_process_is_named() -> None:
    report = checks.run([endings.exported], select=["onnx-standard"])
    (found,) = (one for one in report.rows if one.check == "onnx-standard")
    assert (found.status, found.code) == ("failed", "OPS-CALL-CRASH")
    assert found.message.startswith("crashed with signal 8 (SIGFPE)")
    assert "in one model" not in found.case
    assert "mode='three'" in found.case


@pytest.mark.slow
def test_an_operator_without_anything_to_fix_needs_no_combinations():
    @opsmith.op("telling_test::doubled")
    def doubled(x: Float[Tensor, "N C"]) -> Float[Tensor, "N C"]:
        return 2 * x

    assert not telling(doubled).cases
    assert not row(doubled, "onnx-inline").notes


def test_every_argument_that_an_export_fixes_is_told_by_cases_in_which_it_matters():
    @opsmith.op("telling_test::many")
    def many(
        x: Float[Tensor, "*n"],
        bias: Float[Tensor, "*n"] | None,
        clip: bool,
        limit: float = 1.0,
        power: int = 1,
        unused: int = 3,
    ) -> Float[Tensor, "*n"]:
        y = x**power if power in (1, 2) else x
        y = y if bias is None else y + bias
        return y.clamp(max=limit) if clip else y

    found = telling(many)
    assert found.untold == ["unused"]
    assert 2 <= len(found.cases) <= MOST
    for name in ("bias", "clip", "limit", "power", "the number of dimensions of 'x'"):
        assert len({facts(case)[name] for case in found.cases}) >= 2, name
    # A limit tells something only where something is clipped.
    limits = {case.values["limit"] for case in found.cases if case.values["clip"]}
    assert len(limits) >= 2


@pytest.mark.slow
def test_what_no_case_shows_is_said():
    @opsmith.op("telling_test::scaled")
    def scaled(x: Float[Tensor, "N"], factor: float) -> Float[Tensor, "N"]:
        return x * factor

    @scaled.register_cases(only=True)
    def _(dtype: torch.dtype, seed: int) -> Iterator[dict[str, Any]]:
        yield {"x": torch.randn(3).to(dtype), "factor": 2.0}
        yield {"x": torch.randn(4).to(dtype), "factor": 2.0}

    found = row(scaled, "onnx-inline")
    assert found.status == "passed"
    assert "no two cases show what 'factor' does; register_cases can give some" in found.notes


def test_what_pytorch_says_of_an_export_that_it_refuses_is_said():
    @opsmith.op("telling_test::boxed")
    def boxed(x: Tensor, size: int) -> Tensor:
        return x[:size].clone()

    @boxed.register_fake
    def _(x: Tensor, size: int) -> Tensor:
        raise RuntimeError("no such box")

    @boxed.register_cases(only=True)
    def _(dtype: torch.dtype, seed: int) -> Iterator[dict[str, Any]]:
        yield {"x": torch.randn(3).to(dtype), "size": 2}

    found = row(boxed, "onnx-inline")
    assert found.status == "not applicable"
    assert "could not trace" in found.message and "no such box" in found.message
