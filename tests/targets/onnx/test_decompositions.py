"""What exporters translate wrongly or not at all comes out of ONNX Runtime as out of PyTorch."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import onnx
import pytest
import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

import opsmith
from opsmith import ExportError

pytestmark = pytest.mark.slow(cases=2)

INF, NAN = float("inf"), float("nan")
#: Each pair of values once.
_VALUES = torch.tensor([0.0, -0.0, 1.0, -2.5, 120.0, -120.0, 1e30, -1e30, 1e-30, INF, -INF, NAN])
X, Y = (one.flatten() for one in torch.meshgrid(_VALUES, _VALUES, indexing="ij"))
ROWS = torch.randn(4, 3, generator=torch.Generator().manual_seed(0))
#: The second element twice, the third not at all.
INDEX = torch.tensor([[0, 1, 1], [1, 1, 0]])
#: Of all sizes, of both signs.
SMALL = torch.logspace(-9, 1, 41)
SMALL = torch.cat([SMALL, -SMALL])
COUNTS = torch.tensor([7, -7, 3, -3, 0, 1, -1, 2**33, -(2**33)])
BYTES = torch.tensor([0, 1, 127, 128, 200, 255], dtype=torch.uint8)


class Called(nn.Module):
    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Tensor, y: Tensor, r: Tensor, i: Tensor, n: Tensor, b: Tensor) -> Any:
        return self.function(x, y, r, i, n, b)


def compare(function: Callable[..., Any], folder: Path, exporter: str, **tolerances: float) -> None:
    args = (X, Y, ROWS, INDEX, COUNTS, BYTES)
    model = Called(function)
    opsmith.export(
        model,
        tuple(arg.clone() for arg in args),
        target="onnxruntime",
        out=folder,
        exporter=exporter,
        verify=False,
        say=None,
    )
    given, right = opsmith.load(folder)(*args), model(*args)
    assert given.keys() == right.keys()
    for name, value in right.items():
        torch.testing.assert_close(
            given[name],
            value,
            equal_nan=True,
            msg=lambda text, name=name: f"{name}: {text}",
            **tolerances,
        )


def test_what_the_exporter_translates_wrongly(tmp_path):
    def function(x, y, r, i, n, b):
        spread = torch.full_like(r[:2], 5.0)
        return {
            "log_sigmoid": F.logsigmoid(x),
            "log_add_exp": torch.logaddexp(x, y),
            "atan2": torch.atan2(x, y),
            "sign": torch.signbit(x),
            "mean": r.scatter_reduce(0, i, spread, "mean"),
            "mean_of_others": r.scatter_reduce(0, i, spread, "mean", include_self=False),
            "mean_of_counts": n[None].scatter_reduce(1, i[:1], torch.full_like(i[:1], -3), "mean"),
            "right": b >> 4,
            "left": b << 4,
            "repeated": torch.repeat_interleave(n.remainder(3).int()),
            "repeated_rows": r.repeat_interleave(i[0].add(1).int()[[0, 1, 2, 0]], 0, output_size=6),
            "repeated_to": torch.repeat_interleave(n.remainder(3).int(), output_size=9),
            "range": torch.arange(0, 1.2, 0.2) + r[0, 0],
        }

    compare(function, tmp_path / "model", "dynamo")


def test_repeats_by_a_size_that_changes(tmp_path):
    class Repeated(nn.Module):
        def forward(self, x: Tensor, like: Tensor) -> Any:
            count = like.shape[0]
            return (
                x.repeat_interleave(count, dim=1),
                x.repeat_interleave(count, dim=-1),
                x.repeat_interleave(count),
                x.repeat_interleave(3, dim=0),
            )

    model, x = Repeated(), torch.rand(2, 3, 4)
    shapes = ({0: torch.export.Dim.AUTO}, {0: torch.export.Dim.AUTO})
    opsmith.export(
        model,
        (x, torch.rand(5)),
        dynamic_shapes=shapes,
        target="onnxruntime",
        out=tmp_path / "a",
        say=None,
    )
    x, like = torch.rand(6, 3, 4), torch.rand(2)
    given = opsmith.load(tmp_path / "a")(x, like)
    for one, right in zip(given, model(x, like), strict=True):
        torch.testing.assert_close(one, right, rtol=0, atol=0)


def test_an_index_of_32_bits_that_is_read_twice(tmp_path):
    class Twice(nn.Module):
        def forward(self, x: Tensor, i: Tensor) -> Tensor:
            return x.index_add(0, i, x[:2]) * x.index_add(0, i, x[1:3])

    model, args = Twice(), (torch.rand(4, 3), torch.tensor([3, 1], dtype=torch.int32))
    opsmith.export(model, args, target="onnxruntime", out=tmp_path / "a", say=None)
    given = opsmith.load(tmp_path / "a")(*args)
    torch.testing.assert_close(given, model(*args))


def test_what_the_exporter_does_not_translate(tmp_path):
    def function(x, y, r, i, n, b):
        return {
            "hypot": torch.hypot(x, y),
            "fmax": torch.fmax(x, y),
            "fmin": torch.fmin(x, y),
            # The sign of a NaN is not seen.
            "copy_sign": torch.copysign(x, y.nan_to_num()),
            "copy_sign_of_wider": torch.copysign(x, y.nan_to_num().double()),
            "sorted": torch.sort(r.round(), dim=1, stable=True)[1],
            "descending": torch.sort(r.round(), dim=0, descending=True, stable=True)[1],
            **{
                f"p{p}".replace(".", "_"): torch.cdist(r, r[1:], p)
                for p in (0.0, 1.0, 2.0, 3.0, INF)
            },
        }

    compare(function, tmp_path / "model", "dynamo")


def test_what_the_other_exporter_translates_wrongly(tmp_path):
    def function(x, y, r, i, n, b):
        return {
            "log_sigmoid": F.logsigmoid(x),
            "floor": n // 3,
            "floor_negative": n // -3,
            "floor_float": torch.where(x.abs() < 1e3, x, 0.0) // 2,
            "right": n >> 1,
            "right_of_bytes": b >> 4,
            # ONNX tells 0 from -0 nowhere but in a division.
            "atan2": torch.atan2(r, r.flip(0) - r[:1]),
            "distance": torch.cdist(r, r[1:]),
        }

    compare(function, tmp_path / "model", "torchscript")


@pytest.mark.parametrize("exporter", ["dynamo", "torchscript"])
def test_booleans_are_added_up_and_chosen_among(exporter, tmp_path):
    def function(x, y, r, i, n, b):
        above, even = r > 0, i[[0, 1, 0, 1]] == 0
        return {
            "ranks": above.cumsum(1),
            "ranks_in_32_bits": above.cumsum(0, dtype=torch.int32),
            "ranks_of_the_first": (above.cumsum(1) == 1) & above,
            "bytes": b.cumsum(0),
            "ints": (n.clamp(-9, 9).int() << 28).cumsum(0),
            "floats": r.cumsum(1),
            "either": above + even,
            "both": above * even,
            "chosen": torch.where(above, even, ~even),
            "chosen_among_numbers": torch.where(above, r, -r),
        }

    compare(function, tmp_path / "model", exporter)


@pytest.mark.parametrize("exporter", ["dynamo", "torchscript"])
def test_what_is_small_is_not_lost_beside_1(exporter, tmp_path):
    def function(x, y, r, i, n, b):
        part = SMALL * r[0, 0] / r[0, 0]
        return {
            "log1p": torch.log1p(part.clamp(min=-0.99)),
            "expm1": torch.expm1(part),
            "expm1_everywhere": torch.expm1(x),
            "log1p_everywhere": torch.log1p(x),
            "elu": F.elu(part),
            "elu_scaled": F.elu(part, 0.3),
            "elu_everywhere": F.elu(x),
            "selu": F.selu(part),
            "celu": F.celu(part, 1.7),
            "log_sigmoid": F.logsigmoid(part * 5),
            "cosine": F.cosine_similarity(part[:40].view(10, 4), part[1:41].view(10, 4)),
            "distance": F.pairwise_distance(part[:40].view(10, 4), part[1:41].view(10, 4)),
            "distance_1": F.pairwise_distance(r * 1e-6, r.flip(0) * 1e-6, p=1.0, keepdim=True),
        }

    compare(function, tmp_path / "model", exporter, rtol=1e-6, atol=0)


def test_a_similarity_has_the_dtype_of_its_arguments(tmp_path):
    def function(x, y, r, i, n, b):
        return {"cosine": F.cosine_similarity(r.half(), r.half().flip(0))}

    compare(function, tmp_path / "model", "dynamo", rtol=1e-2, atol=1e-3)


def test_a_power_that_the_other_exporter_does_not_have_is_refused(tmp_path):
    with pytest.raises(ExportError, match=r"does not support p=inf\. Write the distance out"):
        compare(
            lambda x, y, r, i, n, b: {"d": F.pairwise_distance(r, r, INF)},
            tmp_path / "m",
            "torchscript",
        )


@pytest.mark.parametrize("exporter", ["dynamo", "torchscript"])
@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
def test_a_loss_of_large_logits_is_finite(exporter, reduction, tmp_path):
    def function(x, y, r, i, n, b):
        chosen, target = r * 100, r.sigmoid()
        weights = {"weight": r[0].abs(), "pos_weight": r[1].abs()}
        return {
            "plain": F.binary_cross_entropy_with_logits(chosen, target, reduction=reduction),
            "weighed": F.binary_cross_entropy_with_logits(
                chosen, target, reduction=reduction, **weights
            ),
        }

    compare(function, tmp_path / "model", exporter)


@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
def test_labels_are_smoothed(reduction, tmp_path):
    def function(x, y, r, i, n, b):
        label, weight = torch.tensor([0, 1, 2, 2]), torch.tensor([1.0, 2.0, 3.0])
        options = {"reduction": reduction, "label_smoothing": 0.3}
        image = torch.stack([r, 2 * r], 2)
        return {
            "plain": F.cross_entropy(r, label, **options),
            "weighed": F.cross_entropy(r, label, weight, ignore_index=1, **options),
            "image": F.cross_entropy(image, torch.stack([label] * 2, 1), weight, **options),
            "shares": F.cross_entropy(r, r.softmax(1), **options),
        }

    compare(function, tmp_path / "model", "dynamo")


def test_a_distance_that_the_other_exporter_gets_wrong_is_refused(tmp_path):
    with pytest.raises(
        ExportError, match=r"wrong for any p except 2\. Write the distance out, or "
    ):
        compare(
            lambda x, y, r, i, n, b: {"d": torch.cdist(r, r, 1.0)}, tmp_path / "m", "torchscript"
        )


def test_an_operator_that_keeps_a_form_is_not_decomposed(tmp_path: Path) -> None:
    with torch.library._scoped_library("kept_form", "DEF") as library:
        library.define("soft(Tensor x) -> Tensor")
        library.impl("soft", F.softplus, "CompositeImplicitAutograd")

        @opsmith.adopt("kept_form::soft")
        def soft(x: Float[Tensor, "*n"]) -> Float[Tensor, "*n"]:
            return F.softplus(x)

        soft.register_onnx("Softplus")

        class Soft(nn.Module):
            def forward(self, x: Tensor) -> Tensor:
                return torch.ops.kept_form.soft(x)

        opsmith.export(Soft(), (torch.rand(3),), target="onnxruntime", out=tmp_path / "a", say=None)
        nodes = onnx.load(tmp_path / "a" / "model.onnx").graph.node
        assert [node.op_type for node in nodes] == ["Softplus"]
