"""Models in which references stand for operators keep the sizes that declarations require."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from calling import Call
from jaxtyping import Float
from torch import Tensor
from torch.export import Dim

import opsmith
from opsmith.errors import ArgumentError, ExportError
from opsmith.targets import prepare
from opsmith.targets.exporting.artifact import Artifact, Manifest, SizeCondition, TensorSpec
from opsmith.targets.exporting.loaded_artifact import check_inputs
from opsmith.targets.exporting.lowering.choice import Chooser, inline
from opsmith.targets.exporting.lowering.inlining import lower


@opsmith.op("declared_sizes::halves")
def halves(x: Float[Tensor, "B 2*C"]) -> Float[Tensor, "B C"]:
    return x.unflatten(1, (-1, 2)).sum(2)


@opsmith.op("declared_sizes::shared", where=("H % K == 0", "K + 2 <= 3*H < {most}*K"))
def shared(
    q: Float[Tensor, "T H"], k: Float[Tensor, "T K"], most: int = 99
) -> Float[Tensor, "T H"]:
    return q * k.sum(1, keepdim=True)


@opsmith.op("declared_sizes::around", where=("max(A, B) != A//2",))
def around(x: Float[Tensor, "A B"]) -> Float[Tensor, "A B"]:
    return halves(x).sum() + x


@opsmith.op("declared_sizes::adds", mutates_args=("total",), where=("N % 3 == 0",))
def adds(total: Float[Tensor, "N"], x: Float[Tensor, "N N"]) -> None:
    total += x.sum(0)


def added(x: Tensor) -> Tensor:
    total = x.new_zeros(x.shape[0])
    adds(total, x)
    return total


@pytest.mark.parametrize(
    ("function", "pure", "shapes", "expected"),
    [
        (halves, True, [(3, 8)], ["halves: inputs_0_dim_1 % 2 == 0"]),
        (
            shared,
            False,
            [(5, 6), (5, 3)],
            [
                "shared: inputs_0_dim_1 % inputs_1_dim_1 == 0",
                "shared: inputs_1_dim_1 + 2 <= 3*inputs_0_dim_1",
                "shared: 3*inputs_0_dim_1 < 99*inputs_1_dim_1",
            ],
        ),
        (
            around,
            False,
            [(5, 6)],
            [
                "around: max(inputs_0_dim_0, inputs_0_dim_1) != inputs_0_dim_0 // 2",
                "halves: inputs_0_dim_1 % 2 == 0",
            ],
        ),
        (added, True, [(6, 6)], ["adds: inputs_0_dim_0 % 3 == 0"]),
    ],
)
def test_conditions_are_those_of_the_declarations(
    function: Any, pure: bool, shapes: list[tuple[int, ...]], expected: list[str]
) -> None:
    inputs = tuple(map(torch.rand, shapes))
    dynamic = tuple(dict.fromkeys(range(x.dim()), Dim.AUTO) for x in inputs)
    model = prepare(Call(function), inputs, dynamic_shapes=(dynamic,))
    lowered = lower(model, Chooser("inline", {"inline": inline}, "the test's"), pure=pure)
    found = [f"{one.operator.rpartition('::')[2]}: {one}" for one in lowered.conditions]
    assert found == expected


@pytest.mark.parametrize(
    ("sizes", "refused"),
    [
        ((6, 3), ""),
        ((6, 4), "n % k == 0, got k=4, n=6."),
        ((6, 0), "n % k == 0, got k=0, n=6."),
        ((40, 4), "n < 10*k - 1, got k=4, n=40."),
    ],
)
def test_sizes_that_break_a_condition_are_refused(sizes: tuple[int, int], refused: str) -> None:
    conditions = (
        SizeCondition("a::b", "n % k", "==", "0"),
        SizeCondition("a::b", "n", "<", "10*k - 1"),
        SizeCondition("a::b", "elsewhere", "<", "3"),
    )
    inputs = (TensorSpec("x", "float32", ("n", "k")),)
    dims = {"n": (0, None), "k": (0, None), "elsewhere": (0, None)}
    manifest = Manifest("none", {}, inputs, dims=dims, conditions=conditions)
    artifact = Artifact(Path("dist"), Manifest.from_json(manifest.to_json(), Path("m.json")))
    if not refused:
        check_inputs(artifact, [torch.ones(sizes)])
        return
    with pytest.raises(ArgumentError) as caught:
        check_inputs(artifact, [torch.ones(sizes)])
    begin = "dist: the sizes do not fit a::b, whose reference is part of the model: expected "
    assert str(caught.value) == begin + refused


def test_a_named_size_that_a_declaration_relates_is_refused_with_the_way_out() -> None:
    x = torch.rand(3, 8)
    with pytest.raises(
        ExportError, match=r'relate sizes \(2\*C, where=…\): name them by that .*2\*Dim\("c"\)'
    ):
        prepare(Call(halves), (x,), dynamic_shapes=(({1: Dim("width")},),))
    model = prepare(Call(halves), (x,), dynamic_shapes=(({1: 2 * Dim("c", min=2)},),))
    assert model.inputs[0].shape == (3, "2*c")


@opsmith.op("declared_sizes::packed")
def packed(x: Float[Tensor, "N B"]) -> Float[Tensor, "N (B+7)//8"]:
    return x.new_zeros(x.shape[0], (x.shape[1] + 7) // 8)


def test_a_size_that_pytorch_takes_for_other_than_1_is_refused_with_the_way_out() -> None:
    x = torch.rand(3, 20)
    with pytest.raises(ExportError, match=r'ends in != 1, .* as in Dim\("t", min=9\)'):
        prepare(Call(packed), (x,), dynamic_shapes=(({1: Dim("t")},),))
    model = prepare(Call(packed), (x,), dynamic_shapes=(({1: Dim("t", min=9)},),))
    assert model.inputs[0].shape == (3, "t")
